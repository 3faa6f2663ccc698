"""What to do when an attempt ends without an answer: try once more, or tell the client. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.failures import RETRIABLE, Code

MOST_ATTEMPTS: Final = 2
MOST_RETURNS: Final = 8
"""Attempts that no worker took up do not count, up to this many."""
_IN_THE_ENGINE: Final = frozenset({Code.BACKEND_DIED, Code.HUNG, Code.WORKER_GONE})
"""Ends that the request itself may have caused: the next attempt runs alone."""


class Retry(NamedTuple):
    """Ask again; ``suspect``: the request was in an engine when that died."""

    suspect: bool


class Tell(NamedTuple):
    """The client hears of it."""


def after(code: Code, written: bool, attempt: int, returns: int = 0) -> Retry | Tell:
    """Decide after attempt number ``attempt`` ended with ``code``; ``written``: bytes of it were handed on.

    ``returns``: how many of those before it were returned.
    """
    if written or code not in RETRIABLE:
        return Tell()
    if code is Code.RETURNED:
        return Retry(suspect=False) if returns < MOST_RETURNS else Tell()
    if attempt - returns >= MOST_ATTEMPTS:
        return Tell()
    return Retry(suspect=code in _IN_THE_ENGINE)
