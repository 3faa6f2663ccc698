"""The leases of this gateway: slots of workers to which it may send requests directly. Pure.

The worker decides whether a slot is free; the count here only avoids requests that it would not take.
"""

from __future__ import annotations

from protocol.messages.leases import LeaseTerms


class GatewayLease:
    """Slots of one worker for one model."""

    __slots__ = ("busy", "model", "number", "slots", "worker")

    def __init__(self, worker: str, number: int, model: str) -> None:
        """Start with no slot in use; ``model`` is the registered name."""
        self.worker, self.number, self.model = worker, number, model
        self.slots = 0
        self.busy = 0


class GatewayLeases:
    """All leases, by the name that clients use for the model, and the endpoint."""

    def __init__(self) -> None:
        """Start without leases."""
        self._by_name: dict[tuple[str, str], GatewayLease] = {}

    def add(self, worker: str, offer: LeaseTerms) -> GatewayLease:
        """Add or change a lease of a worker, and return it."""
        name = offer.name, offer.endpoint
        lease = next((each for each in self._by_name.values() if _is_lease(each, worker, offer.lease)), None)
        if lease is None:
            lease = GatewayLease(worker, offer.lease, offer.model)
        lease.slots = offer.slots
        self._by_name[name] = lease
        return lease

    def end(self, worker: str, number: int) -> None:
        """Forget a lease."""
        self._by_name = {name: each for name, each in self._by_name.items() if not _is_lease(each, worker, number)}

    def remove_worker(self, worker: str) -> None:
        """Forget the leases of a worker that is gone."""
        self._by_name = {name: each for name, each in self._by_name.items() if each.worker != worker}

    def take(self, name: str, endpoint: str, weight: int) -> GatewayLease | None:
        """Return a lease with ``weight`` free slots, which are in use from now on; None if there is none."""
        lease = self._by_name.get((name, endpoint))
        if lease is None or not weight or lease.busy + weight > lease.slots:
            return None
        lease.busy += weight
        return lease


def _is_lease(lease: GatewayLease, worker: str, number: int) -> bool:
    return lease.worker == worker and lease.number == number
