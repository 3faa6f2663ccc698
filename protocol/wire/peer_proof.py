"""Proof that a process on another node is the one whose id it says: all members have the same key pair, which shows nothing more.

A process that the supervisor has started gets its proof with the order: a digest of its id, made with the supervisor's secret key. A process
that chooses its own id (a gateway, a host of gateways, an agent) chooses a random secret as its proof, and a digest of that as its
id. Each supervisor of a server can check both, and remembers nothing for it.

Others see ids, but no proofs: these only go to the supervisor, on a connection that is encrypted for it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final, NamedTuple

from protocol.wire.bus_address import ClusterKeys

STARTED_ROLES: Final = frozenset({"worker", "job"})
"""The roles of processes that only the supervisor starts."""
_SECRET_BYTES: Final = 32
_DIGITS: Final = 32
"""Of an id that is a digest."""


class PeerIdentity(NamedTuple):
    """The id that a process has chosen, and the proof for it."""

    id: str
    proof: str


def new_identity(role: str) -> PeerIdentity:
    """Return a fresh id for a process that no supervisor has started: the letter of its role and a digest of the proof."""
    proof = secrets.token_hex(_SECRET_BYTES)
    return PeerIdentity(role[0] + _digest(proof), proof)


def proof_for(keys: ClusterKeys, boot: str, peer: str) -> str:
    """Return the proof for a process that a supervisor with these keys starts, in this run of the server."""
    return hmac.new(keys.supervisor.secret.encode(), f"lemonbus peer {boot} {peer}".encode(), "sha256").hexdigest()


def is_proven(keys: ClusterKeys, role: str, boot: str, peer: str, proof: str) -> bool:
    """Return whether a ``Hello`` came from the process whose id it has. Takes the same time for each wrong proof."""
    if role in STARTED_ROLES:
        given, expected = proof, proof_for(keys, boot, peer)
    else:
        given, expected = _digest(proof), peer[1:]
    return hmac.compare_digest(given.encode(), expected.encode())


def _digest(proof: str) -> str:
    return hashlib.sha256(proof.encode()).hexdigest()[:_DIGITS]
