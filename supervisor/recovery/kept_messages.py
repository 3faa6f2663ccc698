"""Messages that wait until a new supervisor knows what runs, and the order in which it handles them. Pure.

Each connection of a peer begins with its ``Hello``: what it sent on an older one is in the snapshot, or will be sent again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import structs

from protocol.messages.work import AttemptEnded, AttemptsEnded, ReserveRequest, SubmitRequest

MAX_MESSAGES: Final = 65_536
MAX_BYTES: Final = 512 * 1024 * 1024
"""Limit of all payloads together: many times what gateways may have submitted when a supervisor died."""


class KeptMessage(NamedTuple):
    """A message of a peer that has said Hello."""

    peer: str
    message: Any
    payload: bytes
    at: float
    """When it arrived."""


class KeptMessages:
    """Bounded. Iterating empties it: reports of workers, then reservations, then requests by age, then everything else.

    A reserved request must find its reservation. Otherwise both the request and then the reservation would be counted.
    """

    def __init__(self) -> None:
        """Keep nothing yet."""
        self._kept: list[KeptMessage] = []
        self.size = 0
        """Bytes of all payloads."""

    def __len__(self) -> int:
        """Return how many messages are kept."""
        return len(self._kept)

    def keep(self, peer: str, message: Any, payload: bytes, now: float) -> bool:
        """Keep a message that has just arrived; return False if too much is already kept."""
        if len(self._kept) >= MAX_MESSAGES or self.size + len(payload) > MAX_BYTES:
            return False
        self._kept.append(KeptMessage(peer, message, payload, now))
        self.size += len(payload)
        return True

    def drop(self, peer: str) -> None:
        """Forget the messages of a peer that has ended, or begins anew."""
        self._kept = [kept for kept in self._kept if kept.peer != peer]
        self.size = sum(len(kept.payload) for kept in self._kept)

    def take(self, gateways: frozenset[str], now: float) -> Iterator[KeptMessage]:
        """Yield and forget all messages, in the order in which to handle them. Their ages are those of now."""
        kept, self._kept, self.size = self._kept, [], 0

        def turn(each: KeptMessage) -> tuple[int, float]:
            if each.peer not in gateways:
                return (0, 0.0)
            if isinstance(each.message, ReserveRequest):
                return (1, 0.0)
            if isinstance(each.message, SubmitRequest):
                return (2, math.inf if each.message.age is None else each.at - each.message.age)
            return (3, 0.0)

        for each in sorted(kept, key=turn):
            yield each._replace(message=_older(each.message, now - each.at))


def _older(message: Any, seconds: float) -> Any:
    """Return a message that has been kept for so long."""
    match message:
        case SubmitRequest(age=float(age)) | AttemptEnded(age=age):
            return structs.replace(message, age=age + seconds)
        case AttemptsEnded(ends):
            return AttemptsEnded([_older(end, seconds) for end in ends])
        case _:
            return message
