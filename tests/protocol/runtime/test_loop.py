"""The loop, on real sockets, pipes, processes, signals and timers."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest
import zmq

from protocol.runtime.loop import Loop
from protocol.wire import frames
from tests.protocol.runtime.run_loop import DEADLINE, run_until
from tests.support.processes import alive


def test_a_socket_is_read_as_long_as_there_is_something(
    loop: Loop, pair: tuple[zmq.Socket[bytes], zmq.Socket[bytes]]
) -> None:
    one, other = pair
    got: list[bytes] = []
    loop.on_socket(one, lambda: got.append(one.recv(zmq.NOBLOCK)))
    for number in range(5):
        other.send(b"%d" % number)
    run_until(loop, lambda: len(got) == 5)
    assert got == [b"0", b"1", b"2", b"3", b"4"]


def test_what_arrives_while_a_socket_is_being_read_is_not_missed(
    loop: Loop, pair: tuple[zmq.Socket[bytes], zmq.Socket[bytes]]
) -> None:
    one, other = pair
    got: list[bytes] = []

    def read() -> None:
        got.append(one.recv(zmq.NOBLOCK))
        if len(got) < 100:
            other.send(b"more")

    loop.on_socket(one, read)
    other.send(b"first")
    run_until(loop, lambda: len(got) == 100)


def test_a_message_whose_edge_a_send_consumed_is_read_without_waiting(
    loop: Loop, pair: tuple[zmq.Socket[bytes], zmq.Socket[bytes]]
) -> None:
    """A send can eat the edge that announces a message: the loop must ask before it sleeps."""
    one, other = pair
    got: list[bytes] = []
    number = loop.on_socket(one, lambda: got.append(one.recv(zmq.NOBLOCK)))
    loop.run_once(0.0)
    other.send(b"here")
    assert one.get(zmq.EVENTS) & zmq.POLLIN  # as a send may do: the edge is gone
    loop.used(number)
    began = time.monotonic()
    loop.run_once(DEADLINE)
    assert got == [b"here"]
    assert time.monotonic() - began < DEADLINE


def test_a_socket_that_is_drained_is_not_asked_again_and_still_read(
    loop: Loop, pair: tuple[zmq.Socket[bytes], zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    got: list[bytes] = []
    asked: list[bool] = []
    readable = frames.readable

    def ask(socket: frames.Socket) -> bool:
        asked.append(readable(socket))
        return asked[-1]

    def read() -> None:
        got.extend(frames.receive_each(one))
        loop.drained(number)
        asked.clear()

    monkeypatch.setattr(frames, "readable", ask)
    number = loop.on_socket(one, read)
    for message in (b"1", b"2"):
        other.send(message)
        run_until(loop, lambda expected=message: got[-1:] == [expected])  # type: ignore[misc]
        loop.run_once(0.0)
        assert asked == []


def test_a_removed_socket_is_not_read(loop: Loop, pair: tuple[zmq.Socket[bytes], zmq.Socket[bytes]]) -> None:
    one, other = pair
    loop.on_socket(one, lambda: pytest.fail("read"))
    loop.on_socket(one, None)
    other.send(b"x")
    loop.run_once(0.01)


def test_timers_fire_in_order_and_not_when_cancelled(loop: Loop) -> None:
    fired: list[str] = []
    loop.call_later(0.02, lambda: fired.append("second"))
    loop.call_later(0.0, lambda: fired.append("first"))
    loop.call_later(0.01, lambda: fired.append("never")).cancel()
    run_until(loop, lambda: len(fired) == 2)
    assert fired == ["first", "second"]


def test_a_cancelled_timer_wakes_nothing(loop: Loop) -> None:
    loop.call_later(0.01, lambda: None).cancel()
    began = time.monotonic()
    loop.run_once(0.1)
    assert time.monotonic() - began >= 0.1


def test_a_timer_that_is_due_soon_causes_no_busy_loop(loop: Loop) -> None:
    iterations: list[int] = []
    fired: list[int] = []
    loop.after_each_iteration(lambda: iterations.append(1))
    loop.call_later(0.05, lambda: fired.append(1))
    run_until(loop, lambda: fired)
    assert len(iterations) <= 5


def test_a_descriptor_that_is_closed_and_reused_in_one_iteration_is_not_mistaken(loop: Loop) -> None:
    """Two pipes are ready; the first one's reader closes the second, whose number is used again."""
    first, feed_first = os.pipe()
    second, feed_second = os.pipe()
    mistaken: list[int] = []
    made: list[int] = []

    def swap(mine: int, theirs: int) -> Callable[[], None]:
        def read() -> None:
            os.read(mine, 1)
            loop.on_readable(theirs, None)
            os.close(theirs)
            made.extend(os.pipe())
            assert theirs in made
            loop.on_readable(made[0], lambda: mistaken.append(1))

        return read

    loop.on_readable(first, swap(first, second))
    loop.on_readable(second, swap(second, first))
    os.write(feed_first, b"x")
    os.write(feed_second, b"x")
    loop.run_once(DEADLINE)
    loop.run_once(0.0)
    assert made
    assert not mistaken
    for fd in {first, second, feed_first, feed_second, *made}:
        loop.on_readable(fd, None)
        os.close(fd)


def test_a_socket_that_is_replaced_by_a_descriptor_of_the_same_number_is_not_mistaken(loop: Loop) -> None:
    context = zmq.Context()
    one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    one.bind("inproc://pair")
    other.connect("inproc://pair")
    number = loop.on_socket(one, lambda: pytest.fail("a removed socket was read"))
    loop.run_once(0.0)
    woken, wake = os.pipe()
    unrelated, feed = os.pipe()

    def replace() -> None:
        os.read(woken, 1)
        loop.on_socket(one, None)
        one.close(0)
        other.close(0)
        context.term()
        os.dup2(unrelated, number)
        loop.on_readable(number, lambda: pytest.fail("nothing was written"))

    loop.on_readable(woken, replace)
    os.write(wake, b"x")
    other.send(b"x")
    loop.run_once(DEADLINE)
    assert context.closed
    loop.run_once(0.0)
    for fd in (number, woken):
        loop.on_readable(fd, None)
    for fd in (number, woken, wake, unrelated, feed):
        os.close(fd)


def test_an_ended_process_is_reported_once_and_at_once_if_it_ended_before(loop: Loop) -> None:
    reported: list[str] = []
    child = subprocess.Popen(["sleep", "60"])
    loop.on_death(child.pid, lambda: reported.append("died"))
    loop.run_once(0.01)
    assert not reported
    assert alive(child.pid)
    child.kill()
    run_until(loop, lambda: reported)
    assert not alive(child.pid)
    child.wait()
    loop.on_death(child.pid, lambda: reported.append("long ago"))
    run_until(loop, lambda: len(reported) == 2)
    assert reported == ["died", "long ago"]


def test_a_cancelled_death_callback_is_not_called(loop: Loop) -> None:
    child = subprocess.Popen(["sleep", "60"])
    loop.on_death(child.pid, lambda: pytest.fail("called back"))
    loop.forget_death(child.pid)
    child.kill()
    child.wait()
    loop.run_once(0.01)


def test_a_signal_wakes_the_loop(loop: Loop) -> None:
    received: list[int] = []
    before = signal.getsignal(signal.SIGUSR1)
    loop.on_signal(signal.SIGUSR1, lambda: received.append(1))
    loop.call_later(0.0, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    run_until(loop, lambda: received)
    signal.signal(signal.SIGUSR1, before)


def test_run_returns_after_the_iteration_that_called_stop(loop: Loop) -> None:
    ends: list[int] = []
    loop.after_each_iteration(lambda: ends.append(1))
    loop.call_later(0.0, loop.stop)
    loop.run()
    assert ends


def test_what_is_called_last_follows_what_every_iteration_does(loop: Loop) -> None:
    order: list[str] = []

    def work() -> None:
        loop.call_last(last)
        order.append("work")

    def last() -> None:
        order.append("last")
        loop.call_last(lambda: order.append("of the last"))

    loop.after_each_iteration(lambda: order.append("flush"))
    loop.call_later(0.0, work)
    loop.run_once(0.0)
    assert order == ["work", "flush", "last", "of the last"]
    loop.run_once(0.0)
    assert order[4:] == ["flush"], "once"


def test_what_happens_at_the_same_intervals_happens_together() -> None:
    clock, calls = [10.25], list[str]()
    loop = Loop(lambda: clock[0])
    loop.every(1.0, lambda: calls.append("one"))
    clock[0] = 10.75
    loop.every(1.0, lambda: calls.append("other"))
    happened = []
    for clock[0] in (10.75, 11.0, 11.5, 12.0, 12.25, 13.0):
        loop.run_once(0.0)
        happened.append(sorted(calls))
        calls.clear()
    loop.close()
    assert happened == [[], ["one"], [], ["one", "other"], [], ["one", "other"]]
