"""What to do when an attempt ends without an answer: try once more, or tell the client. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.failures import RETRIABLE, Code

MAX_ATTEMPTS: Final = 2
MAX_RETURNS: Final = 8
"""Attempts that no worker took up do not count, up to this many."""
_MAY_BE_CAUSED_BY_REQUEST: Final = frozenset(
    {Code.BACKEND_DIED, Code.HUNG, Code.CONNECTION_LOST, Code.OUT_OF_MEMORY, Code.WORKER_GONE}
)
"""Ends that the request itself may have caused: the next attempt runs alone."""


class Retry(NamedTuple):
    """Ask again; ``suspect``: the request was in an engine when that died."""

    suspect: bool


class GiveUp(NamedTuple):
    """The client hears of it."""


def decide_retry(code: Code, written: bool, attempt: int, returns: int = 0) -> Retry | GiveUp:
    """Decide after attempt number ``attempt`` ended with ``code``; ``written``: bytes of it were handed on.

    ``returns``: how many of those before it were returned.
    """
    if written or code not in RETRIABLE:
        return GiveUp()
    if code is Code.RETURNED:
        return Retry(suspect=False) if returns < MAX_RETURNS else GiveUp()
    if attempt - returns >= MAX_ATTEMPTS:
        return GiveUp()
    return Retry(suspect=code in _MAY_BE_CAUSED_BY_REQUEST)
