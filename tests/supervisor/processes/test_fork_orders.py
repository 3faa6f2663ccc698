"""Processes that a fork server is told to start, from the supervisor's side: the test answers, or does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.keeper import channel
from supervisor.keeper.channel import Channel, ClosedError
from supervisor.processes import fork_orders
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.fork_orders import FAILED, FORK, FORKED
from tests.support import processes

MODULE = "workers.jobs.describe"


class Orders:
    """A supervisor's processes, and the other end of its channel to the fork server."""

    def __init__(self, tmp_path: Path, stack: ExitStack) -> None:
        self.loop = Loop()
        self.children = ChildProcesses(self.loop, ProcessContext(tmp_path, "boot", os.getpid()))
        self.fork_server = self.connect()
        self.ends: list[str] = []
        self._stack = stack
        stack.callback(self.loop.close)
        stack.callback(self._end)

    def connect(self) -> Channel:
        """Let the supervisor have a fork server; return that one's end of their channel."""
        ours, theirs = channel.pair()
        self.children.use_fork_server(theirs.detach())
        return ours

    def _end(self) -> None:
        self.fork_server.close()
        self.children.kill_all()
        self.turn(lambda: len(self.children) == 0)
        self.loop.run_once(0.1)  # it reads the end of the channel

    def start(self, module: str = MODULE) -> ChildProcess:
        return self.children.start("job", module, self.ends.append, {"LEMONBUS_PEER": "j1"})

    def turn(self, until: Callable[[], object]) -> None:
        end = self.loop.now() + 15
        while not until():
            assert self.loop.now() < end
            self.loop.run_once(0.05)

    def process(self) -> subprocess.Popen[bytes]:
        """Start what the fork server would fork."""
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process

    def announce(self, process: subprocess.Popen[bytes], number: int = 1) -> bool:
        pidfd = os.pidfd_open(process.pid)
        try:
            return self.fork_server.send(FORKED, f"{number} {process.pid}", pidfd)
        finally:
            os.close(pidfd)


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Orders]:
    with ExitStack() as stack:
        yield Orders(tmp_path, stack)


def test_an_order_names_the_module_and_the_environment(orders: Orders) -> None:
    child = orders.start()
    assert (child.pid, len(orders.children)) == (0, 1)
    received = orders.fork_server.receive(1.0)
    assert received is not None
    word, arguments, descriptor = received
    assert (word, arguments) == (FORK, f"1 {MODULE}")
    environment = fork_orders.read_environment(descriptor)
    os.close(descriptor)
    assert environment.items() >= {"LEMONBUS_ROLE": "job", "LEMONBUS_PEER": "j1", "LEMONBUS_BOOT": "boot"}.items()
    assert environment["PATH"] == os.environ["PATH"]


def test_its_process_is_watched_and_its_end_is_reported(orders: Orders) -> None:
    child, process = orders.start(), orders.process()
    assert orders.announce(process)
    orders.turn(lambda: child.pid)
    assert child.pid == process.pid
    orders.children.kill(child)
    assert process.wait() == -signal.SIGKILL
    orders.children.keeper_reaped(process.pid, -signal.SIGKILL)
    assert (orders.ends, len(orders.children)) == (["SIGKILL"], 0)


def test_an_end_that_is_reported_before_the_start_was_read(orders: Orders) -> None:
    orders.start()
    process = orders.process()
    assert orders.announce(process)
    process.kill()
    process.wait()
    orders.children.keeper_reaped(process.pid, 3)
    assert (orders.ends, len(orders.children)) == (["exit 3"], 0)


@pytest.mark.parametrize(
    ("end", "status"), [(ChildProcesses.kill, -signal.SIGKILL), (ChildProcesses.terminate, -signal.SIGTERM)]
)
def test_a_process_that_must_end_before_it_has_started_ends_then(
    orders: Orders, end: Callable[[ChildProcesses, ChildProcess], None], status: int
) -> None:
    child, process = orders.start(), orders.process()
    end(orders.children, child)
    assert orders.announce(process)
    orders.turn(lambda: child.pid)
    assert process.wait() == status
    orders.children.keeper_reaped(process.pid, status)


def test_a_process_that_cannot_be_forked_has_ended(orders: Orders) -> None:
    orders.start()
    orders.fork_server.send(FAILED, "1 Resource temporarily unavailable")
    orders.turn(lambda: orders.ends)
    assert orders.ends == ["it could not be started: Resource temporarily unavailable"]
    assert len(orders.children) == 0


def test_without_a_fork_server_processes_are_started(orders: Orders) -> None:
    children = [orders.start(), orders.start()]
    orders.fork_server.close()
    orders.turn(lambda: all(child.pid for child in children))
    later = orders.start()
    assert later.pid
    assert len(orders.children) == 3
    for child in (*children, later):
        found = processes.look(child.pid)
        assert found is not None


def test_a_fork_server_that_hangs_is_not_used_any_more(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_orders, "DEADLINE_S", 0.05)
    first, second, unwanted = orders.start(), orders.start(), orders.start()
    orders.children.kill(unwanted)
    process = orders.process()
    assert orders.announce(process, 2)
    orders.turn(lambda: first.pid)
    assert second.pid == process.pid, "it was forked, and is not started again"
    assert orders.ends == ["SIGKILL"], "what is not wanted any more is not started"
    assert not orders.announce(orders.process(), 1), "it comes too late: the process ends"
    process.kill()
    process.wait()
    orders.children.keeper_reaped(process.pid, -9)
    assert orders.ends == ["SIGKILL", "SIGKILL"]


def test_a_module_that_needs_large_libraries_is_not_forked(orders: Orders) -> None:
    assert orders.start("workers.jobs.pull").pid
    assert orders.fork_server.receive() is None


def test_a_full_channel_is_not_waited_for(orders: Orders) -> None:
    child = orders.start()
    while not child.pid:
        child = orders.start()
    assert len(orders.children) > 1


def test_another_fork_server_takes_its_place(orders: Orders) -> None:
    first = orders.start()
    another = orders.connect()
    assert first.pid, "it was started by itself"
    received = orders.fork_server.receive(1.0)
    assert received is not None
    os.close(received[2])
    with pytest.raises(ClosedError):
        orders.fork_server.receive(1.0)
    orders.fork_server.close()
    orders.fork_server = another
    second, process = orders.start(), orders.process()
    assert orders.announce(process)
    orders.turn(lambda: second.pid)
    process.kill()
    process.wait()
    orders.children.keeper_reaped(process.pid, -9)
