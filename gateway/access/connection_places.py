"""How many clients of one kind may be connected to a process at once, and those of one API key."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

from gateway.http.request_context import RequestContext
from protocol.failures import Code, Failure

KEPT_FOR_ADMINS: Final = 8
"""Places that only administrators get."""
_RETRY_S: Final = 5
"""Seconds after which a client that was refused may be admitted."""


class ConnectionPlaces:
    """The places of one route. All administrators count as one owner, and may take them all."""

    def __init__(self, most: int, most_of_key: int, clients: str, do: str) -> None:
        """Begin without clients. ``clients``, ``do``: their words in a refusal ("64 readers already follow the log")."""
        self._most, self._most_of_key = most, most_of_key
        self._clients, self._do = clients, do
        self._taken: Counter[str] = Counter()
        """Name of an API key → its clients; all administrators are one, with an empty name."""

    def check(self, context: RequestContext) -> None:
        """Refuse a client too many before its handshake: a client library reports a status at once, and an error message never."""
        name = _owner(context)
        if name and self._taken[name] >= self._most_of_key:
            text = f"{self._most_of_key} {self._clients} with the API key {name} already {self._do}: end one of them"
            raise Failure(Code.RATE_LIMITED, text, retry_after=_RETRY_S).raised()
        if self._taken.total() >= self._most - (KEPT_FOR_ADMINS if name else 0):
            text = f"{self._taken.total()} {self._clients} already {self._do}: end one of them"
            raise Failure(Code.OVERLOADED, text, retry_after=_RETRY_S).raised()

    @contextlib.contextmanager
    def taken(self, context: RequestContext) -> Iterator[None]:
        """Take a place for a client."""
        name = _owner(context)
        self._taken[name] += 1
        try:
            yield
        finally:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]


def _owner(context: RequestContext) -> str:
    """Return the name of the key by which a client counts, empty for an administrator."""
    return context.api_key.name if context.api_key is not None and not context.is_admin else ""
