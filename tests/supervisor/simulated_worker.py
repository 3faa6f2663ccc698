"""A worker as the scheduler's stage has it: what it was told, what it runs, and what it knows of leases."""

from __future__ import annotations

from protocol.ids import RequestKey
from protocol.messages.leases import IssueLease, LeasedAttempt, RevokeLease


class SimulatedLease:
    """What a worker knows of a lease."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.slots = 0
        self.names: set[tuple[str, str]] = set()
        self.runs: dict[RequestKey, int] = {}


class SimulatedWorker:
    def __init__(self) -> None:
        self.commands: list[object] = []
        self.running: list[RequestKey] = []
        self.unwanted: set[RequestKey] = set()
        """What it has said nobody wants, and its engine works on."""
        self.leases: dict[str, SimulatedLease] = {}
        self.over = 0
        self.recalls: list[RevokeLease] = []
        self.unreported: list[tuple[str, int, list[LeasedAttempt]]] = []
        """Ends of leases that the scheduler has not heard of yet: gateway, number, what still runs."""
        self.delivery_paused = False
        self.undelivered: list[object] = []
        """What the scheduler said of leases while it was deaf."""

    @property
    def leased(self) -> dict[RequestKey, int]:
        return {key: weight for lease in self.leases.values() for key, weight in lease.runs.items()}

    def take_lend(self, lend: IssueLease) -> None:
        lease = self.leases.get(lend.gateway)
        if lease is None and lend.lease > self.over:
            lease = self.leases[lend.gateway] = SimulatedLease(lend.lease)
        if lease is not None and lease.number == lend.lease:
            assert lend.slots >= lease.slots, "a lease became smaller"
            lease.slots = lend.slots
            lease.names.add((lend.name, lend.endpoint))
            key = RequestKey(lend.gateway, lend.number, lend.attempt)
            if key in self.running:  # else it has ended
                lease.runs[key] = lend.weight
            assert sum(lease.runs.values()) <= lease.slots

    def forget_leases(self) -> None:
        self.over = max([self.over, *(lease.number for lease in self.leases.values())])
        self.leases.clear()
        self.recalls.clear()
