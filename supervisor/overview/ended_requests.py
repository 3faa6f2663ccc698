"""The requests that ended last, numbered in the order in which their gateways reported them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from protocol.messages.metrics import EndedRequest
from protocol.messages.overview import MAX_ENDED


class EndedState(msgspec.Struct, frozen=True):
    """What the next supervisor must know. ``count``: of all that have ended."""

    count: int = 0
    last: list[EndedRequest] = []


class EndedRequests:
    """The last :data:`MAX_ENDED` requests."""

    def __init__(self) -> None:
        """None has ended."""
        self._count = 0
        self._last: deque[EndedRequest] = deque(maxlen=MAX_ENDED)

    def add(self, ended: Iterable[EndedRequest]) -> None:
        """Add requests that a gateway has reported."""
        for each in ended:
            self._count += 1
            self._last.append(each)

    @property
    def by_number(self) -> dict[str, EndedRequest]:
        """All of them, the oldest first, by their numbers."""
        first = self._count - len(self._last) + 1
        return {str(number): each for number, each in enumerate(self._last, first)}

    def state(self) -> EndedState:
        """Return what the next supervisor must know."""
        return EndedState(self._count, list(self._last))

    def restore(self, state: EndedState) -> None:
        """Go on from what an earlier supervisor knew."""
        self._count = state.count
        self._last = deque(state.last, maxlen=MAX_ENDED)
