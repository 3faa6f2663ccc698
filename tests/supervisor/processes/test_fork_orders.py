"""Processes that a fork server is told to start, from the supervisor's side. The test gives the answers, or none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from supervisor.keeper.channel import ClosedError
from supervisor.processes import fork_orders
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.fork_orders import FAILED, FORK
from tests.supervisor.processes.fork_orders_harness import MODULE, Orders


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
        # A job without a server ends soon. It keeps its session until the loop runs again and reaps it.
        assert os.getsid(child.pid) == child.pid, "it was started"


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
