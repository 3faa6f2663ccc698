"""A node gets the files of a model from the head, and serves it; it knows them when it or the supervisor is replaced."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.node_files.spec_files import HeadFolders
from tests.conftest import StartServer
from tests.support.models.tiny_models import tiny_models
from tests.support.node_agents import NodeUnderTest, node_of, wait_joined
from tests.support.ports import free_port_pair
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for
from tests.workers.jobs.transfer_files import hub_file

CHAT = "extra.tiny-chat"
COPYING, COPIED = "copying model files", "model files copied"


@pytest.fixture
def server(start_server: StartServer) -> LemonbusServer:
    return start_server("tiny-chat", cluster_address=f"127.0.0.1:{free_port_pair()}")


@contextmanager
def node_without(folder: Path, server: LemonbusServer) -> Iterator[NodeUnderTest]:
    """Start a node that does not see a folder of the head. All models are to be loaded there."""
    within = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {folder} && exec "$@"', "sh")
    if subprocess.run([*within, "true"], capture_output=True, timeout=10, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted on this machine")
    with node_of(server, "gpu1", within) as node:
        wait_joined(server, node)
        assert server.client.post("/internal/nodes/head/drain", {}).status == 200
        yield node


@pytest.fixture
def node(server: LemonbusServer) -> Iterator[NodeUnderTest]:
    with node_without(server.models, server) as node:
        yield node


def logged(server: LemonbusServer, event: str) -> int:
    return sum(line["event"] == event for line in server.lines)


def nodes_in_list(server: LemonbusServer) -> list[str]:
    """Return where the files of the model are, as lists show it."""
    answer = server.client.get(f"/v1/models/{CHAT}").json()
    return list(answer.get("nodes", []))


def place(server: LemonbusServer, node: NodeUnderTest) -> Path:
    """Return where the copy of the model goes on the node."""
    file = server.models / "tiny-chat.gguf"
    folders = HeadFolders(server.home / "hub", Path(server.settings.cache_dir))
    return node.home / "cache" / "node_files" / folders.place(file, file.parent)[1]


def test_a_node_gets_a_model_from_the_head_and_serves_it(server: LemonbusServer, node: NodeUnderTest) -> None:
    assert nodes_in_list(server) == ["head"]
    assert server.client.chat(CHAT).status == 200
    assert node.engines()
    copy = place(server, node)
    assert copy.read_bytes() == (server.models / "tiny-chat.gguf").read_bytes()
    inode = copy.lstat().st_ino
    assert nodes_in_list(server) == ["head", "gpu1"]

    server.kill_supervisor()
    assert server.client.chat(CHAT).status == 200, "the worker there is taken over"
    wait_for(lambda: nodes_in_list(server) == ["head", "gpu1"], "the next supervisor knows the files")

    node.process.terminate()
    assert node.wait_end() == 0
    wait_for(lambda: nodes_in_list(server) == [], "the server has one machine")
    node.start_again()
    wait_joined(server, node)
    wait_for(lambda: nodes_in_list(server) == ["head", "gpu1"], "the node is asked for what it has")
    assert server.client.chat(CHAT).status == 200
    assert copy.lstat().st_ino == inode, "it was copied once"


@contextmanager
def locked(server: LemonbusServer, node: NodeUnderTest) -> Iterator[None]:
    """Hold the lock of the copy: the job on the node waits for it before it fetches anything."""
    digest = hashlib.sha256(os.fsencode(place(server, node))).hexdigest()[:16]
    lock = node.home / "cache" / ".file_locks" / digest
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def copying(server: LemonbusServer) -> bool:
    """Return whether the only load copies its files, and the job has reported how large they are."""
    return [(load["stage"], load["total"]) for load in server.state()["loads"]] == [("copying files", 1)]


def test_a_copy_goes_on_when_its_supervisor_is_killed(server: LemonbusServer, node: NodeUnderTest) -> None:
    with locked(server, node):
        waiting = server.client.start_chat(CHAT)
        wait_for(lambda: copying(server), "the job has its order")
        server.kill_supervisor()
        wait_for(lambda: logged(server, "recovered") and copying(server), "the next supervisor waits for it as well")
    assert waiting.finish().status == 200
    assert logged(server, COPIED) == 1
    assert logged(server, COPYING) == 1, "the same job"


def files_below(folder: Path) -> set[str]:
    # os.walk: folders are being removed meanwhile.
    return {str(Path(root, name).relative_to(folder)) for root, _, names in os.walk(folder) for name in names}


def test_a_deleted_model_is_removed_from_the_hubs_cache_of_the_node(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_head, on_node = tmp_path / "hub", tmp_path / "hub of the node"
    hub_file(on_head, (tiny_models() / "models" / "tiny-chat.gguf").read_bytes(), "tiny-Q4_0.gguf")
    server = start_server(
        "tiny-chat",
        cluster_address=f"127.0.0.1:{free_port_pair()}",
        environment={"HF_HUB_CACHE": str(on_head)},
    )
    monkeypatch.setenv("HF_HUB_CACHE", str(on_node))
    with node_without(on_head, server):
        registration = {"model_name": "user.tiny", "checkpoint": "shop/tiny:Q4_0", "recipe": "llamacpp"}
        assert server.client.post("/v1/pull", registration).status == 200
        assert server.client.chat("user.tiny").status == 200
        copied = {name for name in files_below(on_node) if not name.startswith(".locks")}
        assert copied == files_below(on_head), "other programs find it there as well"
        assert server.client.post("/v1/delete", {"model_name": "user.tiny"}).status == 200
        assert files_below(on_head) == set()
        wait_for(lambda: not files_below(on_node), "it is removed there")
