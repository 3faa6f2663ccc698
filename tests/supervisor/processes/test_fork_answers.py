"""Answers of a fork server that are late, not understood or incomplete, from the supervisor's side."""

from __future__ import annotations

import os
import signal

import pytest

from protocol import RELEASE
from supervisor.keeper import channel
from supervisor.processes import fork_orders
from supervisor.processes.fork_orders import BROKEN, FAILED, FORKED, SERVES
from tests.supervisor.processes.fork_orders_harness import MODULE, Orders
from tests.support.descriptors import no_descriptors


def test_an_answer_that_came_while_the_supervisor_did_not_run_is_in_time(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_orders, "DEADLINE_S", 0.0)
    process = orders.process()
    orders.loop.call_later(0.0, lambda: orders.announce(process))  # after the loop has looked for answers
    child = orders.start()
    orders.loop.run_once(0.0)
    assert child.pid == process.pid
    monkeypatch.undo()
    received = orders.fork_server.receive(1.0)
    assert received is not None
    os.close(received[2])
    for ended in (process, orders.order()):
        ended.kill()
        ended.wait()
        orders.children.keeper_reaped(ended.pid, -9)
    assert orders.ends == ["SIGKILL", "SIGKILL"], "it is used anyway"


def test_a_fork_server_of_another_release_is_not_used(orders: Orders) -> None:
    another = orders.connect("0.0.9")
    assert orders.start().pid
    assert orders.start().pid
    assert another.receive() is None, "the channel is open: the keeper gives none in its place"
    another.close()


def test_one_that_has_not_said_its_release_yet_is_not_used(orders: Orders) -> None:
    another, theirs = channel.pair()
    orders.children.use_fork_server(theirs.detach())
    assert orders.start().pid
    another.send(SERVES, RELEASE)
    orders.fork_server.close()
    orders.fork_server = another
    process = orders.order()
    process.kill()
    process.wait()
    orders.children.keeper_reaped(process.pid, -9)


@pytest.mark.parametrize(
    ("word", "arguments"),
    [
        (FORKED, "2 77"),
        (FORKED, "1 x"),
        (FORKED, ""),
        (FAILED, "9 why"),
        (FAILED, "x"),
        (SERVES, RELEASE),
        (BROKEN, "ImportError: a bug"),
        ("another word", "x" * 4000),
        ("", ""),
    ],
)
def test_after_an_answer_that_is_not_understood_processes_are_started(
    orders: Orders, word: str, arguments: str
) -> None:
    child = orders.start()
    reader, writer = os.pipe()
    orders.fork_server.send(word, arguments, writer)
    os.close(writer)
    orders.turn(lambda: child.pid)
    assert orders.loop.errors == 0
    with os.fdopen(reader, "rb") as file:
        os.set_blocking(reader, False)
        assert file.read() == b"", "the descriptor is closed"


def test_what_a_fork_server_has_said_is_read_though_it_has_not_read_all(orders: Orders) -> None:
    first, second, process = orders.start(), orders.start(), orders.process()
    assert orders.announce(process)
    orders.fork_server.close()
    orders.connect().close()
    assert first.pid == process.pid
    assert second.pid not in {0, process.pid}
    process.kill()
    process.wait()
    orders.children.keeper_reaped(process.pid, -9)


def test_a_process_is_watched_though_its_descriptor_is_lost(orders: Orders) -> None:
    child, process = orders.start(), orders.process()
    assert orders.fork_server.send(FORKED, f"1 {process.pid}")
    orders.turn(lambda: child.pid)
    process.kill()
    process.wait()
    orders.children.keeper_reaped(process.pid, -9)
    assert (orders.ends, len(orders.children)) == (["SIGKILL"], 0)


def test_a_process_that_cannot_be_watched_is_killed(orders: Orders) -> None:
    orders.start()
    process = orders.process()
    assert orders.announce(process)
    with no_descriptors():
        orders.loop.run_once(1.0)
    assert orders.ends == ["it could not be watched, and was killed: Too many open files"]
    assert process.wait(5) == -signal.SIGKILL
    orders.children.keeper_reaped(process.pid, -signal.SIGKILL)
    assert (len(orders.ends), len(orders.children), orders.loop.errors) == (1, 0, 0)


def test_the_late_report_of_an_end_is_not_taken_for_that_of_the_next_process(orders: Orders) -> None:
    process = orders.order()
    orders.children.keeper_reaped(process.pid, 3)
    assert (orders.ends, len(orders.children)) == ([], 1)
    process.kill()
    process.wait()
    orders.children.keeper_reaped(process.pid, -9)
    assert orders.ends == ["SIGKILL"]


def test_a_process_with_the_pid_of_another_one_ends_that_one(orders: Orders) -> None:
    ends: list[str] = []
    orders.children.start("job", MODULE, ends.append)
    orders.start()
    process = orders.process()
    assert orders.announce(process, 1)
    assert orders.announce(process, 2)
    orders.turn(lambda: ends)
    assert (ends, orders.ends, len(orders.children)) == (["how is not known"], [], 1)
    process.kill()
    process.wait()
    orders.children.keeper_reaped(process.pid, -9)
    assert (orders.ends, len(orders.children)) == (["SIGKILL"], 0)
