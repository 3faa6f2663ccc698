"""How an error response is written: each API family has its own form. Pure.

The path decides. Where several families share a path, the headers of the request say whose client sent it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Protocol

from protocol.failures import Failure
from protocol.messages.work import RateLimits

_REMEMBERED: Final = 64
"""How many paths are remembered with their format."""


class ErrorFormat(Protocol):
    """How one API family writes an error response."""

    @property
    def error_prefixes(self) -> tuple[str, ...]:
        """Paths at and below which errors have this form."""

    @property
    def shared_error_prefixes(self) -> tuple[str, ...]:
        """Paths of other families at and below which this family's clients get this form."""

    def is_client(self, environ: Mapping[str, Any]) -> bool:
        """Return whether the headers in a WSGI environment come from a client of this family."""

    def error_status(self, failure: Failure) -> int:
        """Return the HTTP status."""

    def error_body(self, failure: Failure, label: str, *, detail: bool = False) -> bytes:
        """Return the JSON body.

        ``label``: the request id. ``detail``: whether to include ``failure.detail``, for an administrator.
        """

    def limit_headers(self, limits: RateLimits, now: datetime) -> dict[str, str]:
        """Return the headers about the limits of the caller's key, which any response may have."""


class ErrorFormats:
    """The form of each path. It is known before the route is: for unknown paths and for refused requests."""

    def __init__(self, default: ErrorFormat, formats: Iterable[ErrorFormat] = ()) -> None:
        """Use ``default`` for every path that no format names."""
        self._default = default
        formats = tuple(formats)
        self._by_prefix = {prefix: each for each in formats for prefix in each.error_prefixes}
        self._shared = {prefix: each for each in formats for prefix in each.shared_error_prefixes}
        self._depth = max((prefix.count("/") for prefix in (*self._by_prefix, *self._shared)), default=0)
        self._remembered = lru_cache(maxsize=_REMEMBERED)(self._look_up)

    def for_path(self, path: str) -> ErrorFormat:
        """Return the format with the longest prefix that contains ``path``, by whole segments."""
        return self._remembered(path)[0]

    def sharing(self, path: str) -> ErrorFormat | None:
        """Return the format of the family that shares the longest prefix of ``path``, if any: its clients get it."""
        return self._remembered(path)[1]

    def for_request(self, path: str, environ: Mapping[str, Any]) -> ErrorFormat:
        """Return the format of a request whose headers were read: where families share a path, that of its client's family."""
        own, shared = self._remembered(path)
        return shared if shared is not None and shared.is_client(environ) else own

    def _look_up(self, path: str) -> tuple[ErrorFormat, ErrorFormat | None]:
        """Return the formats of a path: that of its family, and that of a family that shares it, unless a longer prefix overrides that."""
        shared = None
        for beginning in self._beginnings(path):
            shared = shared or self._shared.get(beginning)
            if (own := self._by_prefix.get(beginning)) is not None:
                return own, shared
        return self._default, shared

    def _beginnings(self, path: str) -> list[str]:
        """Return the path and everything above it, longest first, but no longer than the prefixes are."""
        segments = path.split("/", self._depth + 1)[: self._depth + 1]
        return ["/".join(segments[:count]) for count in range(len(segments), 0, -1)]
