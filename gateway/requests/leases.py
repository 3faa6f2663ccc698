"""Slots of workers that were lent to this gateway: where a request may go without asking. Pure.

The worker counts; what is counted here only saves asking in vain.
"""

from __future__ import annotations

from protocol.messages.leases import LeaseTerms


class GatewayLease:
    """Slots of one worker."""

    __slots__ = ("busy", "model", "number", "slots", "worker")

    def __init__(self, worker: str, number: int, model: str) -> None:
        """Nothing is used; ``model`` is the registered name."""
        self.worker, self.number, self.model = worker, number, model
        self.slots = 0
        self.busy = 0


class GatewayLeases:
    """All of them, by what clients call the model, and the endpoint."""

    def __init__(self) -> None:
        """Nothing is lent."""
        self._by_name: dict[tuple[str, str], GatewayLease] = {}

    def lent(self, worker: str, offer: LeaseTerms) -> GatewayLease:
        """Take what a worker offers, and return it."""
        name = offer.name, offer.endpoint
        lease = next((each for each in self._by_name.values() if _is_lease(each, worker, offer.lease)), None)
        if lease is None:
            lease = GatewayLease(worker, offer.lease, offer.model)
        lease.slots = offer.slots
        self._by_name[name] = lease
        return lease

    def over(self, worker: str, number: int) -> None:
        """Use a lease no more."""
        self._by_name = {name: each for name, each in self._by_name.items() if not _is_lease(each, worker, number)}

    def gone(self, worker: str) -> None:
        """Use nothing of a worker any more."""
        self._by_name = {name: each for name, each in self._by_name.items() if each.worker != worker}

    def take(self, name: str, endpoint: str, weight: int) -> GatewayLease | None:
        """Return a lease of which ``weight`` slots are now in use, if there is one with so many."""
        lease = self._by_name.get((name, endpoint))
        if lease is None or not weight or lease.busy + weight > lease.slots:
            return None
        lease.busy += weight
        return lease


def _is_lease(lease: GatewayLease, worker: str, number: int) -> bool:
    return lease.worker == worker and lease.number == number
