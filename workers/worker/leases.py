"""The leases of this worker: which gateway may send requests itself, how many, and since when none came. Pure."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from protocol.messages.leases import IssueLease

UNUSED_LEASE_S: Final = 0.05
"""A lease for whose gateway nothing ran for so long is over."""


class WorkerLease:
    """Slots lent to one gateway."""

    __slots__ = ("busy", "gateway", "number", "slots", "used")

    def __init__(self, gateway: str, number: int) -> None:
        """Nothing runs yet."""
        self.gateway, self.number = gateway, number
        self.slots = 0
        self.busy = 0
        """Slots in use."""
        self.used = 0.0
        """When something last began or ended."""


class WorkerLeases:
    """All of them, by gateway."""

    def __init__(self) -> None:
        """Nothing is lent."""
        self._leases: dict[str, WorkerLease] = {}
        self._over = 0
        """The highest number of those that are over: what is still said of such a one comes too late."""

    def __bool__(self) -> bool:
        """Return whether anything is lent."""
        return bool(self._leases)

    def lend(self, message: IssueLease, now: float) -> bool:
        """Lend, or lend more; return False if that lease is over already."""
        lease = self._leases.get(message.gateway)
        if lease is None:
            if message.lease <= self._over:
                return False
            lease = self._leases[message.gateway] = WorkerLease(message.gateway, message.lease)
            lease.used = now
        lease.slots = message.slots
        return True

    def take(self, gateway: str, number: int, weight: int, now: float) -> bool:
        """Use slots of a lease; return False if it is not there or has not that many left."""
        lease = self._leases.get(gateway)
        if lease is None or lease.number != number or lease.busy + weight > lease.slots:
            return False
        lease.busy += weight
        lease.used = now
        return True

    def give(self, gateway: str, number: int, weight: int, now: float) -> None:
        """Take note that slots are free again, if the lease is still there."""
        lease = self._leases.get(gateway)
        if lease is not None and lease.number == number:
            lease.busy -= weight
            lease.used = now

    def holds(self, gateway: str, number: int) -> bool:
        """Return whether this very lease stands."""
        lease = self._leases.get(gateway)
        return lease is not None and lease.number == number

    def end(self, gateway: str, number: int) -> bool:
        """End a lease; return False if it is over already."""
        lease = self._leases.get(gateway)
        if lease is None or lease.number != number:
            return False
        del self._leases[gateway]
        self._over = max(self._over, number)
        return True

    def clear(self) -> list[WorkerLease]:
        """End all of them: there is no engine any more."""
        leases, self._leases = list(self._leases.values()), {}
        self._over = max([self._over, *(lease.number for lease in leases)])
        return leases

    def all(self) -> list[WorkerLease]:
        """Return all of them."""
        return list(self._leases.values())

    def unused(self, now: float, busy: Container[str] = ()) -> list[WorkerLease]:
        """Return those of gateways for which nothing runs, and has not for a while; ``busy``: for whom something does."""
        for lease in self._leases.values():
            if lease.gateway in busy:
                lease.used = now
        return [lease for lease in self._leases.values() if not lease.busy and now - lease.used >= UNUSED_LEASE_S]
