"""Peers are pinged; a peer that is silent or does not read is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.messages.peers import Peer, Ping
from supervisor.processes import gateway_process
from supervisor.processes.peer_liveness import PeerRegistry
from supervisor.processes.peer_monitor import PeerMonitor

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


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


def watched(pid: int) -> tuple[FakeLoop, FakeSupervisorBus, PeerMonitor, PeerRegistry]:
    loop, bus, peers = FakeLoop(), FakeSupervisorBus(), PeerRegistry(SILENCE_S)
    peers.add(Peer("worker", "w1", pid), 0.0)
    monitor = PeerMonitor(loop, bus, peers)  # type: ignore[arg-type]
    monitor.start()
    return loop, bus, monitor, peers


def test_a_silent_peer_is_killed_and_one_that_answers_is_not(process: subprocess.Popen[bytes]) -> None:
    loop, bus, _, peers = watched(process.pid)
    for _ in range(5):
        loop.advance()
        peers.message_received("w1", loop.now())
    assert process.poll() is None
    assert bus.sent == [("w1", Ping(number)) for number in range(5)]
    while loop.time < 6 * peers.ping_interval + SILENCE_S:
        loop.advance()
    assert process.wait(10.0) == -signal.SIGKILL


def test_a_peer_that_does_not_read_is_killed(process: subprocess.Popen[bytes]) -> None:
    _, _, monitor, _ = watched(process.pid)
    monitor.outbox_overflowed("unknown")
    assert process.poll() is None
    monitor.outbox_overflowed("w1")
    assert process.wait(10.0) == -signal.SIGKILL
    monitor.outbox_overflowed("w1")


def test_the_gateways_master_is_not_pinged() -> None:
    loop, bus, peers = FakeLoop(), FakeSupervisorBus(), PeerRegistry(SILENCE_S)
    peers.add(Peer(gateway_process.ROLE, "master", 0), 0.0)
    PeerMonitor(loop, bus, peers).start()  # type: ignore[arg-type]
    loop.advance()
    assert bus.sent == []
