"""Requests that a proxy forwarded: a trusted proxy tells the real client's address; any other proxy gets no rights."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import falcon

from gateway.http.connections.request_parser import is_host

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

FORWARDED_KEY: Final = "lemonbus.forwarded"
"""Key in the WSGI environment: the request came through a proxy, and its client is unknown or not a program of this machine."""
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
"""nginx speaks it where only ``proxy_pass`` is configured, and then adds no header. Clients no longer use it."""
_WITH_PORT: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*):\d{1,5}")
_SCHEMES: Final = frozenset({"http", "https"})


def address_of(text: str) -> Address | None:
    """Return an address without its zone, also for IPv4 written as IPv6; None for any other text."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def client_address(peer: str, forwarded_for: str, trusted: Iterable[Network]) -> str:
    """Return the client's address: the last one of ``X-Forwarded-For`` that is not a trusted proxy's.

    Empty if it is unknown.

    Each proxy appends the address of its own client, so anything before an untrusted address may be invented. If a
    trusted proxy gives no address, or something else, the client is unknown.
    """
    trusted = list(trusted)
    address = peer
    for hop in reversed(forwarded_for.split(",")):
        if not is_trusted(address, trusted):
            break
        named = _hop_address(hop.strip())
        if named is None:
            return ""
        address = str(named)
    return address


def _hop_address(hop: str) -> Address | None:
    """Return the address that a proxy wrote, with or without a port and brackets."""
    if found := _WITH_PORT.fullmatch(hop):
        hop = found[1]
    return address_of(hop[1:-1] if hop[:1] == "[" and hop[-1:] == "]" else hop)


def is_trusted(address: str, trusted: Iterable[Network]) -> bool:
    """Return whether an address lies in one of the networks. A text that is not an address does not."""
    parsed = address_of(address)
    return parsed is not None and any(parsed in network for network in trusted)


class ProxyHeaders:
    """Middleware that reads the forwarding headers of trusted proxies, and marks requests from other proxies."""

    def __init__(self, networks: Sequence[str]) -> None:
        """Trust proxies with addresses in ``networks``."""
        self._trusted = [ipaddress.ip_network(network) for network in networks]

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        """Put the client's address, scheme and host into the environment, where logs and checks read them."""
        environ: dict[str, Any] = req.env
        if environ.keys().isdisjoint(_MARKS) and environ.get("SERVER_PROTOCOL") != _PROXYS_PROTOCOL:
            return
        peer = environ.get("REMOTE_ADDR") or ""
        if not is_trusted(peer, self._trusted):
            environ[FORWARDED_KEY] = True
            return
        forwarded_for = environ.get("HTTP_X_FORWARDED_FOR", "")
        client = client_address(peer, forwarded_for, self._trusted)
        environ["REMOTE_ADDR"] = client or peer
        address = address_of(client)
        if address is None or not address.is_loopback:
            environ[FORWARDED_KEY] = True
        scheme = environ.get("HTTP_X_FORWARDED_PROTO", "").lower()
        if scheme in _SCHEMES:
            environ["wsgi.url_scheme"] = scheme
        # Each proxy appends its own value, so the trusted proxy's is the last one.
        if host := environ.get("HTTP_X_FORWARDED_HOST", "").rpartition(",")[2].strip():
            environ["HTTP_HOST"] = host
            if not is_host(host):
                environ[FORWARDED_KEY] = True
