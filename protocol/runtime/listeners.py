"""Whose programs listen on a port of this machine, according to the kernel's tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN: Final = b"0A"
_ANY_V4: Final = ip_address("0.0.0.0")
_ANY_V6: Final = ip_address("::")

Address = IPv4Address | IPv6Address


def listening_users(port: int) -> set[int]:
    """Return the ids of the users whose programs listen on a port, at any address; raises OSError."""
    return {user for _, user in _listeners(port)}


def answering_users(address: Address, port: int) -> set[int]:
    """Return the ids of the users whose programs get a connection to an address of this machine; raises OSError.

    The kernel prefers a program that listens at exactly this address to one that listens at all addresses. Empty if
    none does, or if the connection is passed on by other means.
    """
    found: dict[Address, set[int]] = {}
    for at, user in _listeners(port):
        found.setdefault(at, set()).add(user)
    wildcards = (_ANY_V4, _ANY_V6) if address.version == 4 else (_ANY_V6,)
    return next((found[at] for at in (address, *wildcards) if at in found), set())


def _listeners(port: int) -> Iterator[tuple[Address, int]]:
    suffix = b":%04X" % port
    for table in _TABLES:
        try:
            lines = table.read_bytes().splitlines()
        except FileNotFoundError:
            continue  # a kernel without IPv6
        for line in lines:
            words = line.split()
            if words[1].endswith(suffix) and words[3] == _LISTEN:
                yield _address(words[1].removesuffix(suffix)), int(words[7])


def _address(digits: bytes) -> Address:
    """Read an address from words of the machine's own byte order."""
    words = (int(digits[at : at + 8], 16) for at in range(0, len(digits), 8))
    found = ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
