"""Addresses of servers elsewhere: a name is looked up without blocking the loop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

Found = tuple[int, Any]
"""Family and address of a socket."""


class NameLookup(Protocol):
    """Looks a name up, without blocking the loop."""

    def __call__(self, host: str, port: int, then: Callable[[Found | None, str], None], /) -> None:
        """Call ``then`` once, from the loop, with what was found, or with None and what went wrong."""


def find_address(host: str, port: int) -> Found:
    """Look a name up; raises OSError. This blocks, unless the name is an address."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    # Many servers listen on IPv4 only, although their name also has an address of IPv6.
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, address


def is_literal(host: str) -> bool:
    """Return whether a host is an address, not a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False
