"""How an error response is written: each API family has a form of its own. Pure.

The path decides. Where several families share a route, a header that only the clients of one of them send decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Protocol

from protocol.failures import Failure
from protocol.messages.work import RateLimits

_REMEMBERED: Final = 64
"""Paths whose format is not looked up again."""


class ErrorFormat(Protocol):
    """How one API family writes an error response."""

    @property
    def error_prefixes(self) -> tuple[str, ...]:
        """Paths at and below which errors have this form."""

    @property
    def shared_error_prefixes(self) -> tuple[str, ...]:
        """Paths of other families at and below which a request with :attr:`client_header` gets this form."""

    @property
    def client_header(self) -> str:
        """Key in the WSGI environment of a header that only clients of this family send; empty if there is none."""

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
        formats = tuple(formats)
        self._by_prefix = {prefix: each for each in formats for prefix in each.error_prefixes}
        self._shared = [each for each in formats if each.client_header]
        prefixes = [*self._by_prefix, *(prefix for each in self._shared for prefix in each.shared_error_prefixes)]
        self._depth = max((prefix.count("/") for prefix in prefixes), default=0)
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._look_up)

    def for_path(self, path: str) -> ErrorFormat:
        """Return the format whose prefix is the longest that ``path`` lies at or below, by whole segments."""
        return self._remembered(path)

    def _look_up(self, path: str) -> ErrorFormat:
        found = (self._by_prefix.get(beginning) for beginning in self._beginnings(path))
        return next((each for each in found if each is not None), self._default)

    def for_request(self, path: str, environ: Mapping[str, Any]) -> ErrorFormat:
        """Return the format of a request whose headers were read: that of its client's family where families share a path."""
        if any(each.client_header in environ for each in self._shared):
            for each in self.sharing(path):
                if each.client_header in environ:
                    return each
        return self.for_path(path)

    def sharing(self, path: str) -> Iterator[ErrorFormat]:
        """Yield the formats of families that share ``path``: their clients' headers choose them."""
        beginnings = self._beginnings(path)
        for each in self._shared:
            if any(beginning in each.shared_error_prefixes for beginning in beginnings):
                yield each

    def _beginnings(self, path: str) -> list[str]:
        """Return the path and all that it lies below, as long as prefixes are, the longest first."""
        segments = path.split("/", self._depth + 1)[: self._depth + 1]
        return ["/".join(segments[:count]) for count in range(len(segments), 0, -1)]
