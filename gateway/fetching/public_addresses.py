"""The addresses that images may be fetched from: public ones, and those of networks in the settings. Pure.

The tables are ours, because ``ipaddress.is_global`` differs between versions of Python. It also counts multicast
addresses as global, and addresses that a NAT64 gateway translates to private ones.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # behind a provider's NAT; a cloud's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's metadata under a public address
        "169.254.0.0/16",  # link-local; the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; a cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        # Within 2000::/3:
        "2001::/23",  # protocol assignments: Teredo addresses contain IPv4 addresses
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: contains IPv4 addresses
        "3fff::/20",  # documentation
    )
)
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All public addresses of IPv6. Everything outside is local, translated (NAT64), multicast or reserved."""


def may_fetch_from(text: str, networks: Iterable[Network] = ()) -> bool:
    """Return whether an address, in a resolver's notation, is public or lies in one of ``networks``.

    An IPv4 address inside an IPv6 one (``::ffff:10.0.0.1``) is judged as the IPv4 address.
    """
    try:
        address: Address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return False
        address = address.ipv4_mapped or address
    if any(address in network for network in networks):
        return True
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return not any(address in network for network in _NOT_PUBLIC)
