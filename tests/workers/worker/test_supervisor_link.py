"""When a process says Hello: real processes as supervisors, a bus without sockets, and a clock that runs only in the loop."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.peers import Hello, Welcome
from protocol.messages.recovery import JobSnapshot
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire.bus_connection import HELLO_INTERVAL_S
from tests.support.waiting import DEADLINE
from workers.worker.supervisor_link import SupervisorLink

STEP_S = 0.01


class Server:
    """The link of one process, the keeper, and supervisors that come and go."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self._processes: list[subprocess.Popen[bytes]] = []
        self.keeper = self.start_process()
        self.listening: subprocess.Popen[bytes] | None = self.start_process()
        self.actions: list[str] = []
        self.broken = False
        self.is_remote = False
        context = ProcessContext(Path("/nowhere"), "boot", self.keeper.pid)
        bus: Any = self
        self.link = SupervisorLink(
            self.loop,
            bus,
            context,
            Hello("job", "j1", 1, "boot"),
            JobSnapshot,
            lambda: self.actions.append("again"),
            lambda: self.actions.append("keeper died"),
        )

    def start_process(self) -> subprocess.Popen[bytes]:
        self._processes.append(subprocess.Popen(["sleep", "600"]))
        return self._processes[-1]

    def end(self, process: subprocess.Popen[bytes] | None) -> None:
        assert process is not None
        process.kill()
        process.wait()

    def run_until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, self.actions
            self.loop.run_once(0.001)
            self.time += STEP_S

    def run_for(self, seconds: float) -> None:
        end = self.time + seconds
        self.run_until(lambda: self.time > end)

    def hellos(self) -> int:
        return self.actions.count("hello")

    def welcome(self) -> None:
        assert self.listening is not None
        self.link.take_welcome(Welcome("boot", self.listening.pid))

    def close(self) -> None:
        self.loop.close()
        for process in self._processes:
            self.end(process)

    # The bus.

    def find_supervisor(self) -> int:
        return self.listening.pid if self.listening else 0

    def connect(self) -> None:
        self.actions.append("connect")

    def disconnect(self) -> None:
        self.actions.append("disconnect")

    def is_broken(self) -> bool:
        return self.broken

    def send(self, message: object, _payload: bytes) -> None:
        assert isinstance(message, Hello)
        self.actions.append("hello")


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.link.start()
    yield made
    made.close()


def test_hello_is_said_once_to_a_supervisor_that_lives(server: Server) -> None:
    server.run_for(2.2 * HELLO_INTERVAL_S)
    server.welcome()
    assert server.link.welcomed
    server.run_for(0.1)
    assert server.actions == ["disconnect", "connect", "hello", "again"]


def test_the_next_supervisor_gets_hello_on_a_new_connection(server: Server) -> None:
    server.welcome()
    former, server.listening = server.listening, None
    server.end(former)
    server.run_until(lambda: server.actions.count("disconnect") >= 4)
    assert not server.link.welcomed
    assert server.hellos() == 1
    server.listening = server.start_process()
    server.run_until(lambda: server.hellos() == 2)
    assert server.actions[-4:] == ["disconnect", "connect", "hello", "again"]
    server.welcome()
    server.run_for(1.2 * HELLO_INTERVAL_S)
    assert server.hellos() == 2


def test_the_first_supervisor_need_not_be_the_one_that_started_the_process() -> None:
    server = Server()
    try:
        server.end(server.listening)
        server.listening = None
        server.link.start()
        server.run_for(0.05)
        assert server.hellos() == 0
        server.listening = server.start_process()
        server.run_until(lambda: server.hellos() == 1)
    finally:
        server.close()


def test_a_broken_connection_is_replaced(server: Server) -> None:
    server.broken = True
    server.run_until(lambda: server.hellos() == 2)
    assert server.time >= HELLO_INTERVAL_S


def test_the_end_of_a_supervisor_that_has_not_answered_is_noticed_at_once(server: Server) -> None:
    server.welcome()
    former, server.listening = server.listening, server.start_process()
    server.end(former)
    server.run_until(lambda: server.hellos() == 2)
    second, server.listening = server.listening, server.start_process()
    began = server.time
    server.end(second)
    server.run_until(lambda: server.hellos() == 3)
    assert server.time - began < HELLO_INTERVAL_S
    server.welcome()
    assert server.link.welcomed


def test_the_socket_of_a_dead_supervisor_causes_no_busy_loop(server: Server) -> None:
    server.welcome()
    server.end(server.listening)
    server.run_for(0.3)
    assert 2 <= server.hellos() <= 40


def test_after_the_keepers_end_no_supervisor_is_looked_for(server: Server) -> None:
    server.welcome()
    former, server.listening = server.listening, None
    server.end(former)
    server.end(server.keeper)
    server.run_until(lambda: "keeper died" in server.actions)
    assert not server.link.server_lives
    server.actions.clear()
    server.listening = server.start_process()
    server.welcome()
    server.run_for(0.2)
    assert not server.actions
    assert not server.link.welcomed
