"""Where a process finds its server's sockets: ipc in a runtime directory, and tcp with CURVE between several machines.

A server without a cluster has only ipc. With one, the *head* is the node of the supervisor. Processes on the head reach
it through ipc as before; those on other nodes reach it at ``cluster_address``, and log records at the port after it. All
processes but the supervisor share one key pair, that of a member, which every listener admits and no other.

Nothing here opens a socket: see ``curve.py`` and ``bus_connection.py``.
"""

from __future__ import annotations

import base64
import ipaddress
import socket
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol import small_files
from protocol.wire import endpoints

MEMBERSHIP_FILE: Final = "cluster.json"
"""In the runtime directory of each node, readable only for its user; there is none on a server without a cluster."""
_LAST_PORT: Final = 65_534
"""The port after it is that of the log records."""
_FIRST_FREE_PORT: Final = 1024
_PORTS: Final = 65_536
_JOIN: Final = "lbj-"
"""By which people, and scanners for leaked secrets, recognize a token."""
_KEY_LENGTH: Final = 40
_WRONG: Final = "not a token as `lemonbus nodes token` prints it"
_NO_CLUSTER: Final = "a server without a cluster has no tcp sockets"


class KeyPair(msgspec.Struct, frozen=True):
    """A CURVE key pair, each key as 40 characters of Z85."""

    public: str
    secret: str


class MemberKeys(msgspec.Struct, frozen=True):
    """The keys of every process but the supervisor."""

    supervisor: str
    """The supervisor's public key."""
    member: KeyPair


class ClusterKeys(msgspec.Struct, frozen=True):
    """All keys of a server; only its head has them."""

    supervisor: KeyPair
    member: KeyPair

    def of_member(self) -> MemberKeys:
        """Return the part that other processes get."""
        return MemberKeys(self.supervisor.public, self.member)


class ClusterMembership(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the processes of one node need besides ipc."""

    address: str
    """``HOST:PORT`` of the supervisor."""
    keys: MemberKeys
    listen: str = ""
    """The host that this node's processes listen at; empty: the address from which this node reaches the supervisor."""


class BusAddress(NamedTuple):
    """The sockets of a server, as one process reaches them."""

    runtime: Path
    """The runtime directory on this node."""
    cluster: ClusterMembership | None = None
    """None on a server without a cluster."""
    remote: bool = False
    """Whether this process is not on the head, and reaches the supervisor through tcp."""

    @property
    def control(self) -> str:
        """The endpoint of the supervisor's ROUTER."""
        if self.remote and self.cluster is not None:
            return tcp_endpoint(*split_address(self.cluster.address))
        return endpoints.bus(self.runtime)

    def logs(self, boot: str) -> str:
        """Return the endpoint of the supervisor's PULL for log records."""
        if self.remote and self.cluster is not None:
            host, port = split_address(self.cluster.address)
            return tcp_endpoint(host, port + 1)
        return endpoints.logs(self.runtime, boot)

    def listening_endpoints(self) -> tuple[str, str]:
        """Return the tcp endpoints of the supervisor's two sockets, with an address, which ZeroMQ needs to bind.

        Only with a cluster. Raises OSError if the name of the host is not known.
        """
        if self.cluster is None:
            raise ValueError(_NO_CLUSTER)
        host, port = split_address(self.cluster.address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found: str = socket.getaddrinfo(host, None, family, socket.SOCK_STREAM)[0][4][0]  # type: ignore[assignment]
        return tcp_endpoint(found, port), tcp_endpoint(found, port + 1)

    def listening_host(self) -> str:
        """Return the host that this node's sockets are bound to. Only with a cluster. Raises OSError without a way to the head."""
        if self.cluster is None:
            raise ValueError(_NO_CLUSTER)
        return self.cluster.listen or own_address(*split_address(self.cluster.address))


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT`` or ``[IPV6]:PORT``; raises ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT):
        raise ValueError(f"not HOST:PORT with a port from 1 to {_LAST_PORT}: {text}")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if (":" in bare) != (bare != host):
        raise ValueError(f"an IPv6 address is written in brackets: {text}")
    return bare, int(port)


def port_range(text: str) -> range:
    """Return the ports of ``FIRST-LAST``, none for an empty text; raises ValueError for anything else."""
    if not text:
        return range(0)
    first, dash, last = text.partition("-")
    if not (dash and first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise ValueError("not FIRST-LAST")
    if not _FIRST_FREE_PORT <= int(first) <= int(last) < _PORTS:
        raise ValueError(f"not two ports from {_FIRST_FREE_PORT} to {_PORTS - 1}, the lower one first")
    return range(int(first), int(last) + 1)


def is_unspecified(host: str) -> bool:
    """Return whether a host means all addresses of a machine, so that others cannot connect to it."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def tcp_endpoint(host: str, port: int | str) -> str:
    """Return the endpoint of a tcp socket. ``port``: ``*`` for any free one."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def own_address(host: str, port: int) -> str:
    """Return the address from which this machine reaches another one. Nothing is sent."""
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, proto) as probe:
        probe.connect(address)
        found: str = probe.getsockname()[0]
    return found


def read_bus_address(runtime: Path, *, remote: bool) -> BusAddress:
    """Return the sockets of the server that uses this runtime directory. ``remote``: the process is not on the head."""
    try:
        data = (runtime / MEMBERSHIP_FILE).read_bytes()
    except FileNotFoundError:
        return BusAddress(runtime)
    return BusAddress(runtime, msgspec.json.decode(data, type=ClusterMembership), remote)


def write_membership(runtime: Path, membership: ClusterMembership | None) -> None:
    """Write what the processes of this node read, or remove it (None). Raises OSError, in which case nothing has changed."""
    path = runtime / MEMBERSHIP_FILE
    if membership is None:
        path.unlink(missing_ok=True)
        return
    small_files.replace_private(path, msgspec.json.encode(membership))


def encode_token(keys: MemberKeys) -> str:
    """Return the token with which processes of other machines join: it has everything but the address."""
    return _JOIN + base64.urlsafe_b64encode(msgspec.json.encode(keys)).decode().rstrip("=")


def decode_token(text: str) -> MemberKeys:
    """Return what a token has; raises ValueError if it is none."""
    body = text.strip().removeprefix(_JOIN)
    try:
        keys = msgspec.json.decode(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=MemberKeys)
    except (ValueError, msgspec.MsgspecError):
        raise ValueError(_WRONG) from None
    if {len(keys.supervisor), len(keys.member.public), len(keys.member.secret)} != {_KEY_LENGTH}:
        raise ValueError(_WRONG)
    return keys
