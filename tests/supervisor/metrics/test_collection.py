"""Metrics are collected from all processes at once, and none of them can delay the result."""

from __future__ import annotations

from protocol.messages.metrics import CollectMetrics
from protocol.runtime.loop import Loop
from supervisor.metrics.collection import COLLECTION_TIMEOUT_S, MetricsCollections


class CollectionFixture:
    """Collections with a clock of their own."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self.asked: list[tuple[str, int]] = []
        self.collections = MetricsCollections(self.loop, self)  # type: ignore[arg-type]
        self.collected: list[dict[str, bytes]] = []

    def send(self, peer: str, message: CollectMetrics) -> None:
        self.asked.append((peer, message.number))

    def collect(self, *peers: str) -> None:
        self.collections.collect(peers, self.collected.append)


def test_without_peers_it_is_over_at_once() -> None:
    fixture = CollectionFixture()
    fixture.collect()
    assert fixture.collected == [{}]


def test_it_ends_with_the_last_answer() -> None:
    fixture = CollectionFixture()
    fixture.collect("w1", "w2", "g1")
    assert sorted(fixture.asked) == [("g1", 1), ("w1", 1), ("w2", 1)]
    fixture.collections.answered("w1", 1, b"x 1\n")
    fixture.collections.answered("w1", 1, b"again")
    fixture.collections.answered("w2", 7, b"another collection")
    fixture.collections.answered("g1", 1, b"")
    assert fixture.collected == []
    fixture.collections.answered("w2", 1, None)
    assert fixture.collected == [{"w1": b"x 1\n", "g1": b""}]


def test_it_ends_without_those_that_are_late() -> None:
    fixture = CollectionFixture()
    fixture.collect("w1", "w2")
    fixture.collections.answered("w1", 1, b"x 1\n")
    fixture.time = COLLECTION_TIMEOUT_S - 0.01
    fixture.loop.run_once(0.0)
    assert fixture.collected == []
    fixture.time = COLLECTION_TIMEOUT_S + 0.01
    fixture.loop.run_once(0.0)
    assert fixture.collected == [{"w1": b"x 1\n"}]
    fixture.collections.answered("w2", 1, b"late")
    fixture.collections.answered("w2", 99, b"unknown")
    assert len(fixture.collected) == 1


def test_several_at_once_are_apart() -> None:
    fixture = CollectionFixture()
    fixture.collect("w1")
    fixture.collect("w1")
    fixture.collections.answered("w1", 2, b"b")
    fixture.collections.answered("w1", 1, b"a")
    assert fixture.collected == [{"w1": b"b"}, {"w1": b"a"}]
