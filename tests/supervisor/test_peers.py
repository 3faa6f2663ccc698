"""Peers that are silent for too long."""

from __future__ import annotations

from protocol.messages.admin import Peer
from supervisor.runtime.peer_liveness import PeerRegistry


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
