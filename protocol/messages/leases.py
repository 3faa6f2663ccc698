"""Leases: slots of a worker that a gateway uses without asking, for as long as nobody waits for anything.

The worker is the authority: it refuses (``returned``) what comes under a lease it does not know, and its word alone
ends one.  So a gateway that is stopped or gone cannot keep a slot, and slots are never given twice.
"""

from __future__ import annotations

import msgspec

from protocol.wire.envelope import control_message


class LeasedAttempt(msgspec.Struct, frozen=True, array_like=True):
    """An attempt of the lease's gateway that is under way, and its slots."""

    number: int
    attempt: int
    weight: int


@control_message
class IssueLease(msgspec.Struct, frozen=True):
    """Supervisor → worker: take up to ``slots`` slots' worth of ``Run`` from this gateway itself.

    The attempt named here was granted a moment ago, and uses ``weight`` of them from now on.  It is told to the gateway
    as an event of that attempt, after the worker has taken note.  Said again with the same number: more slots, or a
    name more, for which it is good too (then ``weight`` is 0 and no attempt is named).
    """

    gateway: str
    lease: int
    """Rises with every lease of the house."""
    slots: int
    name: str
    """What clients call the model."""
    endpoint: str
    model: str
    """The registered name."""
    number: int
    attempt: int
    weight: int


@control_message
class RevokeLease(msgspec.Struct, frozen=True):
    """Supervisor → worker: end the lease. Unknown ones are ignored: their end is on its way."""

    gateway: str
    lease: int


@control_message
class LeaseUsed(msgspec.Struct, frozen=True):
    """Worker → supervisor, now and then: what has been running under a lease for a while."""

    gateway: str
    lease: int
    runs: list[LeasedAttempt]


@control_message
class LeaseEnded(msgspec.Struct, frozen=True):
    """Worker → supervisor: the lease is over, recalled or unused. What still runs holds grants from now on."""

    gateway: str
    lease: int
    runs: list[LeasedAttempt]


class LeaseTerms(msgspec.Struct, frozen=True):
    """What the event LENT carries."""

    lease: int
    slots: int
    name: str
    endpoint: str
    model: str
