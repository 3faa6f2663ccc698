"""A simulated worker: the commands it got, what it runs, and what it knows of leases."""

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
        self.abandoned: set[RequestKey] = set()
        """The attempts that it has reported as abandoned, and its engine works on."""
        self.leases: dict[str, SimulatedLease] = {}
        self.last_ended_lease = 0
        self.revocations: list[RevokeLease] = []
        self.unreported: list[tuple[str, int, list[LeasedAttempt]]] = []
        """Ends of leases that the scheduler has not heard of yet: gateway, number, what still runs."""
        self.delivery_paused = False
        self.undelivered: list[object] = []
        """Messages about leases that it has not read yet."""

    @property
    def leased(self) -> dict[RequestKey, int]:
        return {key: weight for lease in self.leases.values() for key, weight in lease.runs.items()}

    def take_lease(self, issue: IssueLease) -> None:
        lease = self.leases.get(issue.gateway)
        if lease is None and issue.lease > self.last_ended_lease:
            lease = self.leases[issue.gateway] = SimulatedLease(issue.lease)
        if lease is not None and lease.number == issue.lease:
            assert issue.slots >= lease.slots, "a lease became smaller"
            lease.slots = issue.slots
            lease.names.add((issue.name, issue.endpoint))
            key = RequestKey(issue.gateway, issue.number, issue.attempt)
            if key in self.running:  # else it has ended
                lease.runs[key] = issue.weight
            assert sum(lease.runs.values()) <= lease.slots

    def forget_leases(self) -> None:
        self.last_ended_lease = max([self.last_ended_lease, *(lease.number for lease in self.leases.values())])
        self.leases.clear()
        self.revocations.clear()
