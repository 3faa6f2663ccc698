"""Falcon middleware for every request: its id, CORS, the API key, foreign pages, admission."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import falcon

from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.failures import Code, Failure
from protocol.runtime import logs

OPEN_PATHS: Final = frozenset({"/live", "/health"})
"""Paths that are answered without a key, and while the server starts or stops."""
_METHODS: Final = "GET, POST, DELETE, OPTIONS"
_EXPOSED: Final = "X-Request-ID, Retry-After"


class RequestIdHeader:
    """Puts the request id into the log context and the response."""

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Set both before the other middleware runs."""
        label = request_context(req.env).label
        logs.bind_request_id(label)
        resp.set_header("X-Request-ID", label)


class Cors:
    """Sets the CORS headers, and answers preflights."""

    def __init__(self, origins: list[str]) -> None:
        """Allow ``origins``; ``*`` allows all."""
        self._any = "*" in origins
        self._origins = frozenset(origins)

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Set the headers; end here for a preflight."""
        origin = req.get_header("Origin")
        # A cache may give the response for one client to another: so these two are in every response.
        if self._any:
            resp.set_header("Access-Control-Allow-Origin", "*")
        else:
            resp.append_header("Vary", "Origin")
            if origin in self._origins:
                resp.set_header("Access-Control-Allow-Origin", origin)
        if not origin and req.method != "OPTIONS":
            return
        resp.set_header("Access-Control-Expose-Headers", _EXPOSED)
        if req.method != "OPTIONS":
            return
        resp.set_header("Access-Control-Allow-Methods", _METHODS)
        # Echoed, because "*" does not cover Authorization.
        resp.set_header(
            "Access-Control-Allow-Headers",
            req.get_header("Access-Control-Request-Headers") or "Authorization, Content-Type, X-Request-ID",
        )
        resp.set_header("Access-Control-Max-Age", "600")
        resp.set_header("Allow", _METHODS)
        resp.status = falcon.HTTP_204
        resp.complete = True


class ApiKeyCheck:
    """Refuses requests without the API key."""

    def __init__(self, key: str) -> None:
        """Require ``key``."""
        self._key = key.encode()

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Compare the key in constant time; the client is then an administrator."""
        if req.path in OPEN_PATHS:
            return
        given = req.get_header("x-api-key") or ""
        scheme, _, token = (req.get_header("Authorization") or "").partition(" ")
        if scheme.lower() == "bearer":
            given = token.strip()
        if not given:
            raise Failure(Code.UNAUTHORIZED, "an API key is required: Authorization: Bearer KEY, or x-api-key").raised()
        # Headers are latin-1 on their way through WSGI.
        if not hmac.compare_digest(given.encode("latin-1", "replace"), self._key):
            raise Failure(Code.UNAUTHORIZED, "this API key is not valid").raised()
        context = request_context(req.env)
        context.check_admin = _always
        context.check_change = _allow


def _always() -> bool:
    return True


def _allow(_action: str) -> None:
    """Let the caller change the server."""


class ForeignOriginCheck:
    """Without a key: refuses changes of the server's state by foreign web pages.

    A resource names its methods that do in the class attribute ``changes`` (``frozenset({"POST"})``), and in
    ``action`` the words for what they do, if that is something else.
    """

    def __init__(self, host: str, hosts: list[str], origins: list[str]) -> None:
        """Accept this machine's names, the configured ``hosts``, and the configured ``origins``."""
        self._names = {"localhost", host.lower(), socket.gethostname().lower(), *(each.lower() for each in hosts)}
        self._origins = frozenset(origins) - {"*"}

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Let programs and pages of this machine be administrators."""
        context = request_context(req.env)
        context.check_admin = partial(self._is_admin, req)
        context.check_change = partial(self._check_change, req)

    def _is_admin(self, req: falcon.Request) -> bool:
        origin = req.get_header("Origin")
        client = _address(req.env.get("REMOTE_ADDR") or "")
        return (
            client is not None
            and client.is_loopback
            and self._is_own_name(_hostname(f"//{req.get_header('Host') or ''}"))
            and (origin is None or origin in self._origins or self._is_local_origin(_hostname(origin)))
            and req.get_header("Sec-Fetch-Site") != "cross-site"
        )

    def process_resource(
        self, req: falcon.Request, _resp: falcon.Response, resource: object, _params: dict[str, Any]
    ) -> None:
        """Refuse a request of a foreign page, or under a foreign host name."""
        if req.method in getattr(resource, "changes", ()):
            self._check_change(req, getattr(resource, "action", "change the server"))

    def _check_change(self, req: falcon.Request, action: str) -> None:
        if not self._is_own_name(_hostname(f"//{req.get_header('Host') or ''}")):
            remedy = "name it in allowed_hosts, or set an API key, to allow it"
            raise Failure(Code.FORBIDDEN, f"this Host may not {action}; {remedy}").raised()
        origin = req.get_header("Origin")
        if origin is None and req.get_header("Sec-Fetch-Site") == "cross-site":
            # A link or an image of a foreign page: a browser sends no Origin with those.
            raise Failure(Code.FORBIDDEN, f"pages of other sites may not {action}").raised()
        if origin is None or origin in self._origins:
            return
        if not self._is_local_origin(_hostname(origin)):
            raise Failure(Code.FORBIDDEN, f"pages of this origin may not {action}").raised()

    def _is_own_name(self, name: str | None) -> bool:
        # DNS rebinding makes a browser send a foreign name, never an address.
        return name is None or name in self._names or _address(name) is not None

    def _is_local_origin(self, name: str | None) -> bool:
        if name is None:
            return False
        address = _address(name)
        return name in self._names or (address is not None and address.is_loopback)


def _hostname(url: str) -> str | None:
    """Return the name in ``url``, None if there is none, an invalid one if it cannot be parsed."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class AdmissionCheck:
    """Refuses new requests while the server starts or stops."""

    def __init__(self, session: SupervisorSession) -> None:
        """Read the state of ``session``."""
        self._session = session

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Raise the failure of the present state."""
        if req.path not in OPEN_PATHS:
            self._session.admit()


def create_middleware(session: SupervisorSession) -> list[Any]:
    """Return all middleware, in its order."""
    settings = session.settings
    origins = settings.cors_origins
    access_check = (
        ApiKeyCheck(settings.api_key)
        if settings.api_key
        else ForeignOriginCheck(settings.host, settings.allowed_hosts, origins)
    )
    return [RequestIdHeader(), Cors(origins), access_check, AdmissionCheck(session)]
