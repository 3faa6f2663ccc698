"""Peers are pinged; a peer that is silent or does not read is killed."""

from __future__ import annotations

from typing import Any

from protocol.messages.peers import Peer, Ping, Pong
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.internal_errors import InternalErrors
from supervisor.overview.running_tokens import RunningTokens
from supervisor.peers.monitor import PeerMonitor
from supervisor.processes import gateway_process

SILENCE_S = 2.0


class FakeLoop:
    """A clock that the test sets, and the one timer."""

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[tuple[float, Any]] = []

    def now(self) -> float:
        return self.time

    def every(self, seconds: float, callback: Any) -> None:
        self.timers.append((seconds, callback))

    def advance(self) -> None:
        ((seconds, callback),) = self.timers
        self.time += seconds
        callback()


class FakeSupervisorBus:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, peer: str, message: Any) -> None:
        self.sent.append((peer, message))


def monitor_of(
    loop: FakeLoop, bus: FakeSupervisorBus, peers: PeerRegistry, errors: InternalErrors, killed: list[str]
) -> PeerMonitor:
    barrier = WorkerBarrier(loop, bus)  # type: ignore[arg-type]
    return PeerMonitor(
        loop=loop,  # type: ignore[arg-type]
        bus=bus,  # type: ignore[arg-type]
        peers=peers,
        barrier=barrier,
        errors=errors,
        kill_process=killed.append,
        running_tokens=RunningTokens(lambda _: None),
    )


class Watched:
    """A monitor with one peer."""

    def __init__(self) -> None:
        self.loop, self.bus, self.peers = FakeLoop(), FakeSupervisorBus(), PeerRegistry(SILENCE_S)
        self.peers.add(Peer("worker", "w1", 7), 0.0)
        self.killed: list[str] = []
        self.errors = InternalErrors()
        self.monitor = monitor_of(self.loop, self.bus, self.peers, self.errors, self.killed)
        self.monitor.start()


def test_a_silent_peer_is_killed_and_one_that_answers_is_not() -> None:
    one = Watched()
    for _ in range(5):
        one.loop.advance()
        one.peers.message_received("w1", one.loop.now())
    assert one.killed == []
    assert one.bus.sent == [("w1", Ping(number)) for number in range(5)]
    while one.loop.time < 6 * one.peers.ping_interval + SILENCE_S:
        one.loop.advance()
    assert one.killed == ["w1"]


def test_a_peer_that_does_not_read_is_killed() -> None:
    one = Watched()
    one.monitor.outbox_overflowed("unknown")
    assert one.killed == []
    one.monitor.outbox_overflowed("w1")
    assert one.killed == ["w1"]


def test_the_internal_errors_that_a_peer_reports_are_counted() -> None:
    one = Watched()
    one.monitor.pong("w1", Pong(0, 2), b"")
    one.monitor.pong("w1", Pong(1, 1), b"")
    assert one.errors.count == 3


def test_the_gateways_master_is_not_pinged() -> None:
    loop, bus, peers = FakeLoop(), FakeSupervisorBus(), PeerRegistry(SILENCE_S)
    peers.add(Peer(gateway_process.ROLE, "master", 0), 0.0)
    monitor_of(loop, bus, peers, InternalErrors(), []).start()
    loop.advance()
    assert bus.sent == []
