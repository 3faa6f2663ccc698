"""Setting up leases: what a gateway holds, and how it comes to hold it."""

from __future__ import annotations

from protocol.ids import RequestKey
from tests.supervisor.simulated_worker import SimulatedLease
from tests.supervisor.simulation import Simulation


def load_by_request(sim: Simulation, model: str) -> object:
    key = sim.submit(model)
    sim.run_until_idle()
    return key


def lease_of(sim: Simulation, gateway: str = "g1") -> SimulatedLease | None:
    return sim.workers[sim.serving("a")].leases.get(gateway)


def issue_leases(sim: Simulation, gateway: str = "g1", slots: int = 4) -> SimulatedLease:
    """Let a gateway ask for so much at once, and end it, until that is leased."""
    sim.finish(sim.submit("a", gateway))
    keys: list[RequestKey] = []
    while (found := lease_of(sim, gateway)) is None or found.slots < slots:
        keys.append(sim.submit("a", gateway))
        assert len(keys) <= slots
    for key in keys:
        sim.finish(key)
    return found
