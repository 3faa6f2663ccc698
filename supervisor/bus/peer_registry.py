"""The processes on the bus, and how long each has been silent.

Silence shows that a process is stopped. Its end is noticed elsewhere, by the placement or, of a gateway on another node, by its
last message.
"""

from __future__ import annotations

from typing import Final

from protocol.messages.peers import Peer

_MAX_PING_INTERVAL_S: Final = 1.0
_PINGS_WITHIN_SILENCE: Final = 4
"""A peer has several chances to answer before it counts as silent."""
_PINGS_MISSED: Final = 3
"""If the supervisor itself did not run for this many intervals, the silence of others proves nothing."""


class PeerRegistry:
    """The register of peers. Pure: ends are reported to it, and silence is computed from times given as arguments."""

    def __init__(self, silence: float) -> None:
        """``silence``: seconds after which a peer counts as stopped."""
        self._silence = silence
        self.ping_interval = min(_MAX_PING_INTERVAL_S, silence / _PINGS_WITHIN_SILENCE)
        """Seconds between two calls of :meth:`silent`."""
        self._peers: dict[str, Peer] = {}
        self._seen: dict[str, float] = {}
        self._tick = 0.0

    def add(self, peer: Peer, now: float) -> None:
        """Register a peer that was heard at ``now``."""
        self._peers[peer.id] = peer
        self._seen[peer.id] = now

    def remove(self, peer: str) -> Peer | None:
        """Remove a peer that has ended, and return it; None if it was unknown."""
        self._seen.pop(peer, None)
        return self._peers.pop(peer, None)

    def get(self, peer: str) -> Peer | None:
        """Return a peer, None if it is unknown."""
        return self._peers.get(peer)

    def node_of(self, peer: str) -> str:
        """Return the node that a peer has named; empty if it is on the head, or unknown."""
        known = self._peers.get(peer)
        return known.node if known is not None else ""

    def message_received(self, peer: str, now: float) -> bool:
        """Note a message of a peer; return whether the peer is known."""
        if peer in self._peers:
            self._seen[peer] = now
            return True
        return False

    def last_seen(self, peer: str) -> float:
        """Return when a peer last sent anything; 0 if it is unknown."""
        return self._seen.get(peer, 0.0)

    def silent(self, now: float) -> list[Peer]:
        """Return the peers that were silent for too long. To be called about every :attr:`ping_interval`.

        Agents are watched more closely elsewhere (``supervisor/nodes/agents.py``).
        """
        stalled, self._tick = now - self._tick > _PINGS_MISSED * self.ping_interval, now
        if stalled:
            self._seen = dict.fromkeys(self._seen, now)
        late = [self._peers[peer] for peer, seen in self._seen.items() if now - seen > self._silence]
        return [peer for peer in late if peer.role != "agent"]

    def of(self, role: str) -> list[str]:
        """Return the ids of all peers of a role."""
        return [peer.id for peer in self._peers.values() if peer.role == role]

    def all(self) -> list[Peer]:
        """Return all peers."""
        return list(self._peers.values())
