"""Peers that are silent for too long."""

from __future__ import annotations

import pytest

from protocol.messages.peers import Peer
from supervisor.bus.peer_registry import PeerRegistry


def test_silence_is_noticed_but_not_after_an_absence_of_our_own() -> None:
    peers = PeerRegistry(10.0)
    peers.silent(0.0)
    peers.add(Peer("worker", "w1", 1), 0.0)
    peers.add(Peer("worker", "w2", 2), 0.0)
    for second in range(1, 11):
        peers.message_received("w1", second)
        assert peers.silent(second) == []
    assert [peer.id for peer in peers.silent(10.5)] == ["w2"]
    assert peers.silent(100.0) == []
    assert not peers.message_received("w9", 100.0)


@pytest.mark.parametrize("silence", [0.5, 0.9, 2.0, 3.0, 4.0, 10.0])
def test_peers_that_answer_every_ping_are_never_silent_whatever_the_supervisors_own_stalls(silence: float) -> None:
    peers = PeerRegistry(silence)
    peers.silent(0.0)
    peers.add(Peer("worker", "w1", 1), 0.0)
    now = 0.0
    for stall in (0.0, 0.5, 0.7, 0.8, 1.0, 1.2, 3.0, 20.0):
        now += peers.ping_interval + stall * silence
        assert peers.silent(now) == [], f"after a stall of {stall * silence:g} s"
        peers.message_received("w1", now)  # its answer to the ping, which the supervisor then sends
        now += peers.ping_interval
        assert peers.silent(now) == []
        peers.message_received("w1", now)
    for _ in range(round(silence / peers.ping_interval) + 1):
        now += peers.ping_interval
        silent = peers.silent(now)
    assert [peer.id for peer in silent] == ["w1"], "it answers no more"
