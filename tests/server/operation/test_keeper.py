"""The process of ``lemonbus serve``, with the real server: it stays the same when a supervisor dies, is stopped or is upgraded."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]
import pytest

from protocol import RELEASE
from tests.conftest import StartServer
from tests.fake_engines.generation.slow_generation import text_of
from tests.fake_engines.llama_server import program
from tests.support import processes
from tests.support.installed_code import InstalledCode
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT, LOOP = "extra.tiny-chat", "extra.tiny-loop"


def wait_replaced(server: LemonbusServer, old: int) -> int:
    """Wait for another supervisor than ``old``; return its pid."""
    return wait_for(lambda: (pid := server.supervisor_pid) != old and pid, "another supervisor runs")


def processor_seconds(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


class Start(NamedTuple):
    """A server, and the processor time of two of its processes at the end of its start, because the keeper's grows later."""

    server: LemonbusServer
    keeper_s: float
    fork_server_s: float


@pytest.fixture(scope="module")
def start(start_module_server: StartServer) -> Start:
    server = start_module_server("tiny-chat", load=[CHAT], gateway_workers=1)
    return Start(server, processor_seconds(server.keeper_pid), processor_seconds(server.fork_server_pid))


@pytest.fixture
def server(start: Start) -> LemonbusServer:
    return start.server


def test_the_keeper_does_not_spin_while_the_supervisor_is_imported(start: Start) -> None:
    assert start.keeper_s < start.fork_server_s / 3, "importing takes most of the time"


def test_a_killed_supervisor_is_replaced_under_the_same_gateway_and_the_same_lock(server: LemonbusServer) -> None:
    server.wait_loaded(CHAT)
    gateways = server.gateway_pids()
    old = server.kill_supervisor()
    assert server.client.chat(CHAT).text == CHAT_TEXT
    wait_replaced(server, old)
    assert server.gateway_pids() == gateways
    assert any(
        line["event"] == "the last supervisor has ended" and line["reason"] == "SIGKILL" for line in server.lines
    )
    assert int((server.runtime / "lock").read_text()) == server.keeper_pid
    second = LemonbusServer("tiny-chat", wait=False, runtime=server.runtime)
    try:
        assert second.wait_exit() == 1
        assert f"pid {server.keeper_pid}" in second.unread[0]
    finally:
        second.clean()


def test_the_fork_server_may_die_at_any_time(server: LemonbusServer) -> None:
    processes.kill(server.fork_server_pid)
    old = server.kill_supervisor()
    assert server.client.chat(CHAT).text == CHAT_TEXT
    wait_replaced(server, old)


def test_an_upgrade_to_the_same_release(server: LemonbusServer) -> None:
    old = server.supervisor_pid
    answer = server.client.post("/internal/upgrade", {}, **server.admin_headers)
    assert answer.status == 200, answer
    assert answer.json()["pid"] == wait_replaced(server, old)
    assert server.client.chat(CHAT).text == CHAT_TEXT
    assert answer.json()["former_release"] == RELEASE
    asked_later = server.client.get("/internal/upgrade", **server.admin_headers)
    assert asked_later.json() == {**answer.json(), "former_release": None}
    assert server.client.post("/internal/upgrade", {"x": 1}, **server.admin_headers).status == 400


MISTAKES = {
    "supervisor/lifecycle/fork_server.py": (
        "import nothing_of_that_name\n",
        "could not be started: exit 1; what it printed is in the server's stderr",
    ),
    "supervisor/lifecycle/main.py": ("\ndef run(keeper: object) -> int:\n    return 1 // 0\n", "ZeroDivisionError"),
}
"""File of a release → the mistake at its end, and what the answer says about it."""


def test_a_release_that_cannot_start_changes_nothing(start_server: StartServer, tmp_path: Path) -> None:
    code = InstalledCode(tmp_path)
    server = start_server("tiny-chat", load=[CHAT], root=code.folder)
    server.wait_loaded(CHAT)
    for number, (file, (mistake, message)) in enumerate(MISTAKES.items(), 1):
        whole = code.append(file, mistake)
        answer = server.client.post("/internal/upgrade", {})
        assert answer.status == 500
        assert message in answer.error["message"]
        asked_later = server.client.get("/internal/upgrade")
        assert (asked_later.status, asked_later.error["message"]) == (500, answer.error["message"])
        assert server.client.chat(CHAT).text == CHAT_TEXT
        events = [line["event"] for line in server.lines]
        assert events.count("not upgraded: this release goes on") == number
        code.replace(file, whole)


def test_sigusr2_upgrades(server: LemonbusServer) -> None:
    old = server.supervisor_pid
    os.kill(server.keeper_pid, signal.SIGUSR2)
    wait_replaced(server, old)
    assert server.client.chat(CHAT).text == CHAT_TEXT


def takes_no_requests(server: LemonbusServer) -> bool:
    try:
        return server.client.get("/health").status == 503
    except OSError:  # the listener is closed
        return True


@pytest.mark.parametrize("order", [(signal.SIGKILL, signal.SIGTERM), (signal.SIGTERM, signal.SIGKILL)])
def test_sigterm_around_a_supervisors_death(start_server: StartServer, tmp_path: Path, order: tuple[int, int]) -> None:
    program_of_engine = program(tmp_path, "pauses_mid_stream")
    server = start_server("tiny-loop", load=[LOOP], grace=60, llamacpp_backend="system", llama_server=program_of_engine)
    server.wait_loaded(LOOP)
    supervisor, engine = server.supervisor_pid, server.engine_pid(LOOP)
    stream = server.client.start_chat(LOOP, stream=True, max_tokens=9)
    stream.until(lambda it: len(it.events) > 2)
    with processes.stopped(engine):
        for number in order:
            os.kill(supervisor if number == signal.SIGKILL else server.keeper_pid, number)
        wait_for(lambda: not processes.alive(supervisor), "the supervisor is dead")
        wait_for(lambda: takes_no_requests(server), "no requests are taken")
        resumed = time.monotonic()
    assert stream.finish(60).done, "what runs may end"
    assert stream.events[-1].at > resumed
    assert stream.text == text_of(9)
    assert server.wait_exit() == 0
    server.assert_nothing_left()
