"""Servers without keys: programs and pages of this machine are administrators; pages of other sites may change nothing."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import falcon

from gateway.access.proxies import FORWARDED_KEY, address_of
from gateway.access.scopes import handled_as
from gateway.http.request_context import is_browser, is_question
from protocol.failures import Code, Failure

_OWN_SITES: Final = frozenset({"same-origin", "same-site", "none"})
"""Values of ``Sec-Fetch-Site`` for pages of this machine, and for an address that a person typed in."""
_REMEMBERED: Final = 64
"""How many parsed names and addresses are remembered."""


class ForeignOriginCheck:
    """Refuses changes of the server's state by foreign web pages.

    A resource names its methods that change state in the class attribute ``changes`` (``frozenset({"POST"})``).
    ``action`` says in words what they do, if the default does not fit. With ``uses_models``, a GET is checked as a POST to a
    model is: it opens a WebSocket. What is ``private`` is for the pages of named origins only, even if ``cors_origins`` has "*".
    """

    def __init__(self, host: str, hosts: list[str], origins: list[str]) -> None:
        """Accept this machine's names, the configured ``hosts``, and the configured ``origins``."""
        self._names = {"localhost", host.lower(), socket.gethostname().lower(), *(each.lower() for each in hosts)}
        self._any = "*" in origins
        self._origins = frozenset(origin.lower() for origin in origins) - {"*"}

    def is_admin(self, req: falcon.Request) -> bool:
        """Return whether the caller is a program or a page of this machine."""
        environ = req.env
        origin = environ.get("HTTP_ORIGIN")
        client = _address(environ.get("REMOTE_ADDR") or "")
        return (
            client is not None
            and client.is_loopback
            and not environ.get(FORWARDED_KEY)
            and self._is_own_name(_hostname(f"//{environ.get('HTTP_HOST', '')}"))
            and (origin is None or self._is_known_origin(origin))
            and environ.get("HTTP_SEC_FETCH_SITE") != "cross-site"
        )

    def check(self, req: falcon.Request, resource: object) -> None:
        """Refuse a request to change state if it comes from a foreign page or names a foreign host."""
        if handled_as(req.method) in getattr(resource, "changes", ()):
            self.check_change(req, getattr(resource, "action", "change the server"))
        elif req.method != "OPTIONS" and getattr(resource, "private", False):
            self._check_origin(req, "use files and batches")
        elif not self._any and (req.method == "POST" or getattr(resource, "uses_models", False)):
            # CORS only keeps a page from reading the answer; the model would still have done the work.
            self._check_origin(req, "use models")

    def _check_origin(self, req: falcon.Request, action: str) -> None:
        origin = req.env.get("HTTP_ORIGIN")
        if origin is not None and not self._is_known_origin(origin):
            refusal = f"pages of this origin may not {action}; name it in cors_origins to allow it"
            raise Failure(Code.FORBIDDEN, refusal).raised()

    def check_change(self, req: falcon.Request, action: str) -> None:
        """Refuse an ``action`` that changes state if it comes from a foreign page or names a foreign host."""
        if refusal := self.refusal(req, action):
            raise Failure(Code.FORBIDDEN, refusal).raised()

    def refusal(self, req: falcon.Request, action: str) -> str:
        """Return why the caller may not change state, in words; empty if it may."""
        environ = req.env
        if environ.get(FORWARDED_KEY):
            return f"requests that a proxy forwarded may not {action}; make an API key to allow it"
        if not self._is_own_name(_hostname(f"//{environ.get('HTTP_HOST', '')}")):
            return f"this Host may not {action}; name it in allowed_hosts, or set an API key, to allow it"
        origin = environ.get("HTTP_ORIGIN")
        if origin is None:
            return _pages_refusal(environ, action)
        if self._is_known_origin(origin):
            return ""
        return f"pages of this origin may not {action}; name it in cors_origins, or set an API key, to allow it"

    def _is_own_name(self, name: str | None) -> bool:
        # DNS rebinding makes a browser send a foreign name, never an address.
        return name is not None and (name in self._names or _address(name) is not None)

    def _is_known_origin(self, origin: str) -> bool:
        """Return whether an origin is configured, or of this machine."""
        if origin.lower() in self._origins:
            return True
        name = _hostname(origin)
        if name is None:
            return False
        address = _address(name)
        return name in self._names or (address is not None and address.is_loopback)


def _pages_refusal(environ: Mapping[str, Any], action: str) -> str:
    """Return why a request without an Origin may not do an ``action``: a link or an image of a foreign page may have sent it."""
    site = environ.get("HTTP_SEC_FETCH_SITE")
    if site is not None:
        return "" if site in _OWN_SITES else f"pages of other sites may not {action}"
    if not is_question(environ.get("REQUEST_METHOD", "")):
        return ""  # browsers send an Origin with all other requests
    # Over plain HTTP, browsers say which site a request comes from to loopback addresses only, and some never say it. A
    # page can hide its Referer, and choose the Accept header.
    if "HTTP_REFERER" in environ or is_browser(environ):
        reason = "a GET without Sec-Fetch-Site does not say which page sent it"
        return f"a browser may not {action} so: {reason}; send it by POST where the route has that, or set an API key"
    return ""


# Every request has a Host, and most have the same one. Parsing it takes as long as a whole step of the request.
@lru_cache(maxsize=_REMEMBERED)
def _hostname(url: str) -> str | None:
    """Return the host name in ``url``: None if there is none, an invalid name if it cannot be parsed."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return ""


_address: Final = lru_cache(maxsize=_REMEMBERED)(address_of)
