"""Leases: slots of a worker that a gateway uses without asking the supervisor, as long as no request waits anywhere.

The worker is the authority: it refuses (``returned``) requests under a lease that it does not know, and only it ends
a lease.  So a gateway that is stopped or dead cannot keep a slot, and no slot is used twice.
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

    The attempt named here was granted a moment ago, and uses ``weight`` of them from now on.  The worker notes the lease
    and then tells the gateway by an event of that attempt.  A second message with the same number adds slots, or another
    name of the model (then ``weight`` is 0 and no attempt is named).
    """

    gateway: str
    lease: int
    """Rises with every lease of the server."""
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
    """Supervisor → worker: end the lease. Unknown ones are ignored: they have just ended."""

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
    """Worker → supervisor: the lease is over, revoked or unused. Attempts that still run hold grants from now on."""

    gateway: str
    lease: int
    runs: list[LeasedAttempt]


class LeaseTerms(msgspec.Struct, frozen=True):
    """The data of a ``LEASE_ISSUED`` event."""

    lease: int
    slots: int
    name: str
    endpoint: str
    model: str
