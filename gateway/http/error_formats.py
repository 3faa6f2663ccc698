"""How an error response is written, by its path: each API family has a form of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol

from protocol.failures import Failure
from protocol.messages.work import RateLimits


class ErrorFormat(Protocol):
    """How one API family writes an error response."""

    @property
    def error_prefixes(self) -> tuple[str, ...]:
        """Paths at and below which errors have this form."""

    def error_status(self, failure: Failure) -> int:
        """Return the HTTP status."""

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        """Return the JSON body; ``label`` is the request id, ``detail``: an administrator may read ``failure.detail``."""

    def limit_headers(self, limits: RateLimits, now: datetime) -> dict[str, str]:
        """Return the headers of any response about the limits of the caller's key."""


class ErrorFormats:
    """The form of each path. It is known before a route is: for unknown paths and for requests that are refused."""

    def __init__(self, default: ErrorFormat, formats: Iterable[ErrorFormat] = ()) -> None:
        """Use ``default`` for every path that no format names."""
        self._default = default
        by_prefix = {prefix: each for each in formats for prefix in each.error_prefixes}
        self._longest_first = sorted(by_prefix.items(), key=lambda item: -len(item[0]))

    def for_path(self, path: str) -> ErrorFormat:
        """Return the format whose prefix is the longest that ``path`` lies at or below, by whole segments."""
        for prefix, each in self._longest_first:
            if path == prefix or path.startswith(prefix + "/"):
                return each
        return self._default
