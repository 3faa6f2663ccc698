"""The leases of this worker: which gateway may send requests itself, for how many slots, and since when none came. Pure.

Invariants:

* A gateway has at most one lease, and its busy slots never exceed the lease's slots.
* The number of a lease that has ended is never valid again.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from protocol.messages.leases import IssueLease

UNUSED_LEASE_S: Final = 0.05
"""A lease ends when nothing ran for its gateway for this long."""


class WorkerLease:
    """Slots that one gateway may use."""

    __slots__ = ("busy", "gateway", "number", "slots", "used_at")

    def __init__(self, gateway: str, number: int, now: float) -> None:
        """Create a lease under which nothing runs yet."""
        self.gateway, self.number = gateway, number
        self.slots = 0
        self.busy = 0
        """Slots in use."""
        self.used_at = now
        """When an attempt last began or ended."""


class WorkerLeases:
    """The leases of one worker."""

    def __init__(self) -> None:
        """Start without leases."""
        self._leases: dict[str, WorkerLease] = {}
        """Gateway → its lease."""
        self._highest_ended = 0
        """The highest number of a lease that has ended; a message about a lower one comes too late."""

    def __bool__(self) -> bool:
        """Return whether there is a lease."""
        return bool(self._leases)

    def issue(self, message: IssueLease, now: float) -> bool:
        """Add a lease, or slots to one; return False if that lease has ended already."""
        lease = self._leases.get(message.gateway)
        if lease is None:
            if message.lease <= self._highest_ended:
                return False
            lease = self._leases[message.gateway] = WorkerLease(message.gateway, message.lease, now)
        lease.slots = message.slots
        return True

    def use(self, gateway: str, number: int, weight: int, now: float) -> bool:
        """Use ``weight`` slots of a lease; return False if it does not stand or has not that many left."""
        lease = self._leases.get(gateway)
        if lease is None or lease.number != number or lease.busy + weight > lease.slots:
            return False
        lease.busy += weight
        lease.used_at = now
        return True

    def release(self, gateway: str, number: int, weight: int, now: float) -> None:
        """Take note that slots are free again, if the lease still stands."""
        lease = self._leases.get(gateway)
        if lease is not None and lease.number == number:
            lease.busy -= weight
            lease.used_at = now

    def stands(self, gateway: str, number: int) -> bool:
        """Return whether the lease of this number has not ended."""
        lease = self._leases.get(gateway)
        return lease is not None and lease.number == number

    def end(self, gateway: str, number: int) -> bool:
        """End a lease; return False if it has ended already."""
        if not self.stands(gateway, number):
            return False
        del self._leases[gateway]
        self._highest_ended = max(self._highest_ended, number)
        return True

    def clear(self) -> list[WorkerLease]:
        """End all of them and return them."""
        leases, self._leases = list(self._leases.values()), {}
        self._highest_ended = max([self._highest_ended, *(lease.number for lease in leases)])
        return leases

    def all(self) -> list[WorkerLease]:
        """Return all of them."""
        return list(self._leases.values())

    def unused(self, now: float, busy: Container[str] = ()) -> list[WorkerLease]:
        """Return the leases of gateways for which nothing has run for a while; ``busy``: gateways with attempts now."""
        for lease in self._leases.values():
            if lease.gateway in busy:
                lease.used_at = now
        return [lease for lease in self._leases.values() if not lease.busy and now - lease.used_at >= UNUSED_LEASE_S]
