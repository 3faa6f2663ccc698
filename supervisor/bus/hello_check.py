"""Which processes may say Hello over tcp, and which lines about those that may not are worth a log. Pure.

A process that can connect has the key of a member. That is not enough to take part as any process: its Hello must name a role that there
is on other nodes, and its node, and prove its id. Processes of the head use ipc.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final, NamedTuple

from protocol.failures import printable
from protocol.messages.gateway_hosts import GATEWAY_HOST
from protocol.messages.peers import Hello
from protocol.models.nodes import HEAD, why_no_node_name
from protocol.wire.bus_address import ClusterKeys
from protocol.wire.peer_proof import is_proven

_ROLES: Final = frozenset({"gateway", "worker", "job", "agent", GATEWAY_HOST})
_ID: Final = re.compile(r"[a-z][0-9a-z]{1,40}")
_MAX_COUNTED: Final = 1024


class Refusal(NamedTuple):
    """Why a Hello is refused."""

    kind: str
    """What is wrong, without the words of the peer: there are few of these."""
    why: str


def refusal(hello: Hello, keys: ClusterKeys) -> Refusal | None:
    """Return why a Hello that came over tcp is refused; None if it is not. ``keys``: of this server."""
    if hello.role not in _ROLES:
        return Refusal("role", f"unknown role {printable(hello.role)}")
    if not hello.node or hello.node == HEAD:
        return Refusal("head", "processes of the head do not connect over tcp")
    if why := why_no_node_name(hello.node):
        return Refusal("node", why)
    if not _ID.fullmatch(hello.id):
        return Refusal("id", f"{printable(hello.id)} is not the id of a peer")
    if not is_proven(keys, hello.role, hello.boot, hello.id, hello.proof):
        return Refusal("proof", f"it does not prove that it is {hello.id}")
    return None


class RefusalCounts:
    """Counts refusals, so that what is refused again and again has few lines in the log."""

    def __init__(self) -> None:
        """There was none."""
        self._counts: Counter[str] = Counter()

    def count(self, what: str) -> int:
        """Count a refusal; return the number that the log should name: of the first, the second, the fourth …; 0 of all others."""
        if len(self._counts) >= _MAX_COUNTED and what not in self._counts:
            del self._counts[next(iter(self._counts))]
        self._counts[what] += 1
        number = self._counts[what]
        return 0 if number & (number - 1) else number

    def forget(self, what: str) -> None:
        """Count from the beginning: it was not refused this time."""
        self._counts.pop(what, None)
