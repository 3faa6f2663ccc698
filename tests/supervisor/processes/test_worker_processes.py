"""Workers by name: where they publish their events is what they say, and what is removed when they have ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.messages.peers import Hello
from protocol.models.nodes import HEAD
from protocol.runtime.process_context import ProcessContext
from supervisor.processes.placement import OnEnded
from supervisor.processes.worker_processes import WorkerProcesses


class FakePlacement:
    """Starts nothing; a test ends what was started."""

    def __init__(self) -> None:
        self.ends: dict[str, OnEnded] = {}
        self.nodes: dict[str, str] = {}

    def start(self, name: str, role: str, module: str, on_ended: OnEnded, extra: Any = None, node: str = HEAD) -> None:
        assert (role, module, extra) == ("worker", "workers", {"LEMONBUS_FINGERPRINT": "settings"})
        self.nodes[name] = node
        self.ends[name] = on_ended

    def node_of(self, name: str) -> str:
        return self.nodes[name]


@pytest.mark.parametrize(("folder", "removed"), [("runtime", True), ("elsewhere", False)])
def test_only_a_socket_in_the_runtime_directory_is_removed(tmp_path: Path, folder: str, removed: bool) -> None:
    placement: Any = FakePlacement()
    workers = WorkerProcesses(placement, ProcessContext(tmp_path / "runtime", "boot", 1), "settings")
    file = tmp_path / folder / "socket"
    file.parent.mkdir()
    file.touch()
    known: list[tuple[str, str]] = []
    workers.on_ended = lambda worker, why: known.append((worker, why))
    workers.start("w1")
    assert (workers.names(), workers.endpoint("w1"), workers.socket_file("w1")) == (["w1"], "", None)
    workers.publishes_at("w1", Hello("worker", "w1", 1, "boot", endpoint=f"ipc://{file}"))
    placement.ends["w1"]("exit 0")
    assert known == [("w1", "exit 0")]
    assert file.exists() != removed
    assert (workers.names(), workers.endpoint("w1")) == ([], "")


def test_a_worker_runs_on_the_head_unless_another_node_is_named(tmp_path: Path) -> None:
    placement: Any = FakePlacement()
    workers = WorkerProcesses(placement, ProcessContext(tmp_path, "boot", 1), "settings")
    workers.start("w1")
    workers.start("w2", "gpu2")
    assert placement.nodes == {"w1": HEAD, "w2": "gpu2"}


def test_a_path_on_another_node_is_not_one_of_this_machine(tmp_path: Path) -> None:
    placement: Any = FakePlacement()
    workers = WorkerProcesses(placement, ProcessContext(tmp_path, "boot", 1), "settings")
    file = tmp_path / "socket"
    file.touch()
    for worker, node in (("w1", HEAD), ("w2", "gpu2")):
        workers.start(worker, node)
        hello = Hello("worker", worker, 1, "boot", endpoint=f"ipc://{file}", node="" if node == HEAD else node)
        workers.publishes_at(worker, hello)
    assert (workers.socket_file("w1"), workers.socket_file("w2")) == (file, None)
    placement.ends["w2"]("exit 0")
    assert file.exists()


@pytest.mark.parametrize(
    ("worker_node", "gateway_node", "endpoint"),
    [(HEAD, "", "ipc:///w1"), (HEAD, "gpu2", "tcp://h:1"), ("gpu2", "", "tcp://h:1"), ("gpu2", "gpu2", "tcp://h:1")],
)
def test_only_gateways_and_workers_of_the_head_use_ipc(
    tmp_path: Path, worker_node: str, gateway_node: str, endpoint: str
) -> None:
    placement: Any = FakePlacement()
    workers = WorkerProcesses(placement, ProcessContext(tmp_path, "boot", 1), "settings")
    workers.start("w1", worker_node)
    node = "" if worker_node == HEAD else worker_node
    hello = Hello("worker", "w1", 1, "boot", endpoint="ipc:///w1", node=node, remote_endpoint="tcp://h:1")
    workers.publishes_at("w1", hello)
    assert workers.endpoint("w1", gateway_node) == endpoint
