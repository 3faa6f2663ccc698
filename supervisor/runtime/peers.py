"""Who is on the bus, and whether they still turn: a pidfd tells of deaths, silence tells of stopped ones."""

from __future__ import annotations

from typing import Final

from protocol.messages.admin import Peer

_SELF_STALL_S: Final = 3.0
"""If the supervisor itself did not turn for this long, silence proves nothing about the others."""


class PeerRegistry:
    """The register of peers. Pure: deaths and silences are told by others, or computed from times handed in."""

    def __init__(self, silence: float) -> None:
        """``silence``: seconds after which a peer counts as stopped."""
        self._silence = silence
        self._peers: dict[str, Peer] = {}
        self._seen: dict[str, float] = {}
        self._tick = 0.0

    def add(self, peer: Peer, now: float) -> None:
        """Somebody said Hello."""
        self._peers[peer.id] = peer
        self._seen[peer.id] = now

    def remove(self, peer: str) -> Peer | None:
        """Somebody is gone; return who it was."""
        self._seen.pop(peer, None)
        return self._peers.pop(peer, None)

    def get(self, peer: str) -> Peer | None:
        """Return who this is."""
        return self._peers.get(peer)

    def message_received(self, peer: str, now: float) -> bool:
        """Somebody sent something; return whether it is known."""
        if peer in self._peers:
            self._seen[peer] = now
            return True
        return False

    def silent(self, now: float) -> list[Peer]:
        """Return who has not been heard for too long. To be called about every second."""
        absent, self._tick = now - self._tick > _SELF_STALL_S, now
        if absent:
            self._seen = dict.fromkeys(self._seen, now)
        return [self._peers[peer] for peer, seen in self._seen.items() if now - seen > self._silence]

    def of(self, role: str) -> list[str]:
        """Return the ids of all peers of a role."""
        return [peer.id for peer in self._peers.values() if peer.role == role]

    def all(self) -> list[Peer]:
        """Return everybody."""
        return list(self._peers.values())
