"""Decides whether a failed attempt is repeated, or the client gets its failure. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.failures import RETRIABLE, Code, Failure

MAX_ATTEMPTS: Final = 2
MAX_RETURNS: Final = 8
"""An attempt that its worker gave back before it began (``Code.RETURNED``) is repeated at most this often. It does not count as an
attempt."""
_MAY_BE_CAUSED_BY_REQUEST: Final = frozenset(
    {Code.BACKEND_DIED, Code.HUNG, Code.CONNECTION_LOST, Code.OUT_OF_MEMORY, Code.WORKER_GONE}
)
"""Failures that the request itself may have caused: the next attempt runs alone."""


class Retry(NamedTuple):
    """Try again. ``suspect``: the request was in an engine that died."""

    suspect: bool


class GiveUp(NamedTuple):
    """Answer the failure to the client."""


def decide_retry(failure: Failure, written: bool, attempt: int, returns: int = 0) -> Retry | GiveUp:
    """Decide after attempt number ``attempt`` has ended with ``failure``. ``written``: bytes of its answer were taken.

    ``returns``: how many earlier attempts were returned.
    """
    code = failure.code
    if written or failure.by_request or code not in RETRIABLE:
        return GiveUp()
    if code is Code.RETURNED:
        return Retry(suspect=False) if returns < MAX_RETURNS else GiveUp()
    if attempt - returns >= MAX_ATTEMPTS:
        return GiveUp()
    return Retry(suspect=code in _MAY_BE_CAUSED_BY_REQUEST)
