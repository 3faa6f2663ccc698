"""Which numbered reports of each peer were counted, so that none counts twice. Pure.

A peer numbers its reports from 1. They come in order on one connection; after a connection was lost, it sends its latest
ones again, and when it has ended, others may send those that are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAX_PEERS: Final = 4096
MAX_AHEAD: Final = 1024
"""Numbers of one peer that are known one by one, because a smaller one is missing."""


class EndSerials:
    """The numbers of the reports that were counted, of the peers heard of last."""

    def __init__(self) -> None:
        """Nothing was counted."""
        self._counted: dict[str, tuple[int, set[int]]] = {}
        """Peer → the number up to which all were counted, and those beyond it."""

    def is_new(self, peer: str, serial: int) -> bool:
        """Note that a report is counted now; return False if it already was."""
        upto, ahead = self._counted.pop(peer, (0, set()))
        new = serial > upto and serial not in ahead
        if serial == upto + 1 and not ahead:
            upto = serial
        elif new:
            ahead.add(serial)
            if len(ahead) > MAX_AHEAD:
                upto = min(ahead) - 1  # the missing ones are not sent again so late
            while upto + 1 in ahead:
                upto += 1
                ahead.remove(upto)
        self._counted[peer] = (upto, ahead)
        if len(self._counted) > MAX_PEERS:
            del self._counted[next(iter(self._counted))]
        return new

    def state(self) -> dict[str, list[int]]:
        """Return all of it, for the next supervisor: peer → the number up to which all were counted, then those beyond it."""
        return {peer: [upto, *sorted(ahead)] for peer, (upto, ahead) in self._counted.items()}

    def restore(self, state: Mapping[str, list[int]]) -> None:
        """Go on from what an earlier supervisor knew."""
        self._counted = {peer: (upto, set(ahead)) for peer, (upto, *ahead) in state.items()}
