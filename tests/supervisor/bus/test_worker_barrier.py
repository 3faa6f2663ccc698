"""An answer waits until the earlier messages of workers were read; a worker that does not answer delays it for a moment at most."""

from __future__ import annotations

import pytest

from protocol.messages.peers import Ping
from protocol.runtime.loop import Loop
from supervisor.bus.worker_barrier import BARRIER_TIMEOUT_S, WorkerBarrier


class PingLog:
    """Keeps the pings that are sent."""

    def __init__(self) -> None:
        self.pings: list[tuple[str, int]] = []

    def send(self, peer: str, message: Ping) -> None:
        self.pings.append((peer, message.number))


class Barrier:
    """A barrier with a clock of its own, and its callbacks."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self.log = PingLog()
        self.barrier = WorkerBarrier(self.loop, self.log)  # type: ignore[arg-type]
        self.called: list[str] = []

    def wait(self, name: str, *workers: str) -> None:
        self.barrier.wait(workers, lambda: self.called.append(name))


@pytest.fixture
def waiting() -> Barrier:
    return Barrier()


def test_without_workers_nothing_is_waited_for(waiting: Barrier) -> None:
    waiting.wait("a")
    assert waiting.called == ["a"]
    assert waiting.log.pings == []


def test_each_wait_ends_with_the_last_answer_to_its_own_pings(waiting: Barrier) -> None:
    waiting.wait("a", "w1", "w2")
    waiting.wait("b", "w1")
    assert sorted(waiting.log.pings) == [("w1", -2), ("w1", -1), ("w2", -1)]
    for number in (0, 1, 7, -3):
        waiting.barrier.pong("w1", number)
    waiting.barrier.pong("w1", -1)
    waiting.barrier.pong("w1", -1)
    waiting.barrier.pong("w2", -2)
    assert waiting.called == []
    waiting.barrier.pong("w1", -2)
    assert waiting.called == ["b"]
    waiting.barrier.pong("w2", -1)
    assert waiting.called == ["b", "a"]


def test_a_worker_that_does_not_answer_is_waited_for_a_moment_and_once(waiting: Barrier) -> None:
    waiting.wait("a", "w1")
    waiting.time = BARRIER_TIMEOUT_S - 0.001
    waiting.loop.run_once(0.0)
    assert waiting.called == []
    waiting.time = BARRIER_TIMEOUT_S
    waiting.loop.run_once(0.0)
    assert waiting.called == ["a"]
    waiting.barrier.pong("w1", -1)
    waiting.time *= 2
    waiting.loop.run_once(0.0)
    assert waiting.called == ["a"]


def test_a_worker_that_has_ended_is_no_longer_waited_for(waiting: Barrier) -> None:
    waiting.wait("a", "w1")
    waiting.wait("b", "w1", "w2")
    waiting.wait("c", "w2")
    waiting.barrier.forget("w1")
    assert waiting.called == [], "its end is handled first"
    waiting.loop.run_once(0.0)
    assert waiting.called == ["a"]
    waiting.barrier.pong("w2", -2)
    assert waiting.called == ["a", "b"]
    waiting.barrier.forget("w2")
    waiting.barrier.pong("w2", -3)
    waiting.time = BARRIER_TIMEOUT_S
    waiting.loop.run_once(0.0)
    assert waiting.called == ["a", "b", "c"], "each once"
