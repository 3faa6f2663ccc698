"""A simulation with a model that has several engines, and questions about them."""

from __future__ import annotations

from protocol.ids import RequestKey
from supervisor.scheduler.policy import FixedPolicies, ModelPolicy
from tests.supervisor.scheduler.simulation import Simulation


def replicated(
    least: int = 2, most: int | None = None, *, models: int = 9, slots: int = 2, **policy: object
) -> Simulation:
    """Return a simulation in which the model a is loaded: it has from ``least`` to ``most`` engines, others have one."""
    of = ModelPolicy(min_replicas=least, max_replicas=most or least, **policy)
    sim = Simulation(models, slots, FixedPolicies({"a": of}))
    sim.load("a", 500)
    sim.run_until_idle()
    return sim


def runs_on(sim: Simulation, key: RequestKey) -> int:
    """Return the number of the replica that works on a request; 0: none."""
    return next((each.number for each in sim.state.replica_sets["a"].replicas if key in each.grants), 0)


def worker(sim: Simulation, number: int) -> str:
    replica = sim.state.replica_sets["a"].replica(number)
    assert replica is not None
    assert replica.worker is not None
    return replica.worker.id


def wait_for_others(sim: Simulation, seconds: float) -> None:
    """Let time pass as it does for a supervisor, in small steps."""
    for _ in range(int(seconds / 0.25)):
        sim.pass_time(0.25)
        sim.run_until_idle()
