"""Workers that the fork server forks: they are like workers that were started directly, and do not need the fork server."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.processes import ProcessInfo
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"
REPETITIONS = 12
"""How often in a row a process must look the same, within half a second."""


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    """The tests kill its processes, one after the other; each test finds a fork server, or does not need one."""
    return start_module_server("tiny-chat", "tiny-loop", gateway_workers=1, grace=1.0)


def idle_worker(server: LemonbusServer, but: int = 0) -> ProcessInfo:
    """Wait for a worker that runs no engine, and return it."""

    def idle() -> ProcessInfo | None:
        engines = {process.parent for process in server.process_tree()}
        return next((each for each in server.workers() if each.pid != but and each.pid not in engines), None)

    return wait_for(idle, "a worker is idle")


def as_seen(worker: ProcessInfo) -> dict[str, Any]:
    """What an administrator and the kernel see of a process, without its own numbers and names."""
    folder = Path(f"/proc/{worker.pid}")
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
    variables = dict(
        entry.split("=", 1) for entry in (folder / "environ").read_text().rstrip("\0").split("\0") if entry
    )
    return {
        "command": worker.words,
        "name": processes.name(worker.pid),
        "leads its session": os.getsid(worker.pid) == os.getpgid(worker.pid) == worker.pid,
        "descriptors": sorted(re.sub(r"\d+", "N", str(each.readlink())) for each in (folder / "fd").iterdir()),
        "folder": (folder / "cwd").readlink(),
        "limits": (folder / "limits").read_text(),
        "oom score": (folder / "oom_score_adj").read_text(),
        "status": {name: status[name] for name in ("Umask", "SigBlk", "SigIgn", "SigCgt", "Threads", "Groups")},
        "environment": {name: value for name, value in variables.items() if name != "LEMONBUS_PEER"},
        "has a name on the bus": "LEMONBUS_PEER" in variables,
    }


def has_sockets(seen: dict[str, Any]) -> bool:
    return "socket:[N]" in seen["descriptors"]


def settled(server: LemonbusServer, worker: ProcessInfo) -> dict[str, Any]:
    """Return what is seen of a worker when it has said Hello and does not change any more."""
    wait_for(lambda: worker.pid in {peer["pid"] for peer in server.state()["processes"]}, "it has said Hello")
    views: list[dict[str, Any]] = []

    def unchanged() -> bool:
        try:
            views.append(as_seen(worker))
        except FileNotFoundError:  # a descriptor was closed meanwhile
            views.clear()
        return (
            len(views) >= REPETITIONS
            and has_sockets(views[-1])
            and all(each == views[-1] for each in views[-REPETITIONS:])
        )

    wait_for(unchanged, "it has started")
    return views[-1]


def test_a_forked_worker_is_like_one_that_was_started_by_itself(server: LemonbusServer) -> None:
    forked = idle_worker(server)
    assert forked.parent == server.keeper_pid
    seen = settled(server, forked)
    with processes.stopped(server.keeper_pid):  # it starts no other fork server meanwhile
        processes.kill(server.fork_server_pid)
        processes.kill(forked.pid)
        started = idle_worker(server, but=forked.pid)
    assert started.parent == server.supervisor_pid
    assert settled(server, started) == seen
    assert any(line["event"] == "the fork server is not used any more" for line in server.lines)
    assert server.client.chat(CHAT).status == 200


def next_is_forked(server: LemonbusServer) -> bool:
    spare = idle_worker(server)
    with contextlib.suppress(ProcessLookupError):  # one that was not needed any more may have ended by now
        processes.kill(spare.pid)
    return idle_worker(server, but=spare.pid).parent == server.keeper_pid


def test_a_dead_fork_server_is_replaced_and_used(server: LemonbusServer) -> None:
    wait_for(lambda: next_is_forked(server), "workers are forked again")


def test_no_two_workers_have_the_same_secrets(server: LemonbusServer) -> None:
    keys = []
    for model in (CHAT, LOOP):
        assert server.client.post("/v1/load", {"model_name": model}).status == 200
        keys.append(processes.engine_key(server.engine_pid(model)))
    assert len({*keys, ""}) == 3
    assert server.client.post("/v1/unload", {}).status == 200


def test_an_order_of_a_dead_supervisor_is_not_carried_out(server: LemonbusServer) -> None:
    with processes.stopped(server.fork_server_pid):
        workers = {worker.pid for worker in server.workers()}
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                processes.kill(worker)
        wait_for(lambda: not any(map(processes.alive, workers)), "others are ordered in their place")
        old = server.kill_supervisor()
    wait_for(lambda: server.supervisor_pid != old, "another supervisor runs")
    assert server.client.chat(CHAT).status == 200
    wait_for(lambda: len(server.workers()) == 2, "only that of the model and a spare are left")
    assert server.client.post("/v1/unload", {}).status == 200


def test_a_stopped_fork_server_is_not_waited_for(server: LemonbusServer) -> None:
    fork_server = server.fork_server_pid
    with processes.stopped(fork_server):
        processes.kill(idle_worker(server).pid)
        assert server.client.chat(CHAT).status == 200
        before = {worker.pid for worker in server.workers()}
    # What it was told before is not wanted any more.
    wait_for(lambda: server.fork_server_pid == fork_server, "it goes on")
    idle_worker(server)
    assert before <= {worker.pid for worker in server.workers()}
    wait_for(lambda: next_is_forked(server), "it is used again")
    assert server.fork_server_pid == fork_server
