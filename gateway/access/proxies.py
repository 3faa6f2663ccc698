"""Requests that a proxy forwarded: the real client's address from a trusted proxy, and no rights from any other one."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any, Final

import falcon

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

FORWARDED_KEY: Final = "lemonbus.forwarded"
"""Key in the WSGI environment: the request came through a proxy, and its client is unknown or is no program of this machine."""
_MARKS: Final = frozenset(
    {
        "HTTP_X_FORWARDED_FOR",
        "HTTP_X_FORWARDED_HOST",
        "HTTP_X_FORWARDED_PROTO",
        "HTTP_X_FORWARDED_PORT",
        "HTTP_X_REAL_IP",
        "HTTP_FORWARDED",
        "HTTP_VIA",
    }
)
_PROXYS_PROTOCOL: Final = "HTTP/1.0"
"""nginx speaks it where only ``proxy_pass`` is configured, and adds no header then. Clients do not use it any more."""
_SCHEMES: Final = frozenset({"http", "https"})


def client_address(peer: str, forwarded_for: str, trusted: Iterable[Network]) -> str:
    """Return the client's address: the last one of ``X-Forwarded-For`` that is no trusted proxy's.

    Each proxy appends the address that it was asked from; what is before an untrusted one may be invented.
    """
    trusted = list(trusted)
    address = peer
    hops = [hop.strip() for hop in forwarded_for.split(",") if hop.strip()]
    while hops and is_trusted(address, trusted):
        address = hops.pop()
    return address


def is_trusted(address: str, trusted: Iterable[Network]) -> bool:
    """Return whether an address lies in one of the networks; a text that is no address lies in none."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in trusted)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class ProxyHeaders:
    """Middleware: believes the forwarding headers of trusted proxies, and marks the requests of others."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Trust proxies whose addresses lie in ``networks``."""
        self._trusted = [ipaddress.ip_network(network) for network in networks]

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Put the client's address, scheme and host into the environment; logs and checks read them there."""
        environ: dict[str, Any] = req.env
        if environ.keys().isdisjoint(_MARKS) and environ.get("SERVER_PROTOCOL") != _PROXYS_PROTOCOL:
            return
        peer = environ.get("REMOTE_ADDR") or ""
        if not is_trusted(peer, self._trusted):
            environ[FORWARDED_KEY] = True
            return
        forwarded_for = environ.get("HTTP_X_FORWARDED_FOR", "")
        environ["REMOTE_ADDR"] = address = client_address(peer, forwarded_for, self._trusted)
        if not forwarded_for.strip() or not _is_loopback(address):
            environ[FORWARDED_KEY] = True
        scheme = environ.get("HTTP_X_FORWARDED_PROTO", "").lower()
        if scheme in _SCHEMES:
            environ["wsgi.url_scheme"] = scheme
        if host := environ.get("HTTP_X_FORWARDED_HOST", "").strip():
            environ["HTTP_HOST"] = host
