"""CORS: which web pages may read responses, and what a preflight is told. Pure.

This is what browsers are told. ``foreign_origins.py`` decides what pages of foreign origins may do here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.http.rate_limit_headers import LIMITED

METHODS: Final = "GET, HEAD, POST, DELETE, OPTIONS"
"""The methods that routes have."""
_ALLOWED_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
"""A page that uses another method gets our 405 to read, instead of a bare network error."""
_USUAL_HEADERS: Final = "Authorization, Content-Type, X-Request-ID"
_MAX_AGE_S: Final = "600"
EXPOSED: Final = ", ".join(
    [
        "X-Request-ID",
        "request-id",
        "Retry-After",
        "X-Should-Retry",
        "X-Queue-Position",
        "X-Queue-Wait",
        "Warning",
        *(f"x-ratelimit-{kind}-{what}" for what in LIMITED for kind in ("limit", "remaining", "reset")),
        *(f"anthropic-ratelimit-{what}-{kind}" for what in LIMITED for kind in ("limit", "remaining", "reset")),
    ]
)
"""Headers that scripts of a page may read, besides the few that they always may."""


class CorsPolicy:
    """The headers of responses, by the origin of the page that sent the request."""

    def __init__(self, origins: Iterable[str]) -> None:
        """Allow ``origins``; ``*`` allows all."""
        self._origins = frozenset(origin.lower() for origin in origins)
        self._any = "*" in self._origins
        self._always = {"Access-Control-Allow-Origin": "*"} if self._any else {"Vary": "Origin"}

    def headers(self, origin: str) -> Mapping[str, str]:
        """Return the headers of any response, errors included; ``origin``: empty if the request had none.

        The first ones are in every response, because a cache may give the response for one client to another.
        """
        if not origin:
            return self._always
        headers = {**self._always, "Access-Control-Expose-Headers": EXPOSED}
        if origin.lower() in self._origins:
            headers["Access-Control-Allow-Origin"] = origin
        return headers

    def preflight_headers(self, wanted: str) -> dict[str, str]:
        """Return the additional headers of a response to ``OPTIONS``.

        ``wanted``: the headers that the page wants to send.

        They are echoed, because ``*`` does not cover ``Authorization``.
        """
        return {
            "Access-Control-Allow-Methods": _ALLOWED_METHODS,
            "Access-Control-Allow-Headers": wanted or _USUAL_HEADERS,
            "Access-Control-Max-Age": _MAX_AGE_S,
            "Allow": METHODS,
        }
