"""Simulations with several nodes, and where their models are."""

from __future__ import annotations

from protocol.messages.engines import CheckModel
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from tests.supervisor.scheduler.simulation import Simulation


def cluster(models: int = 9, head: int = 100, *, scales: bool = False, **nodes: int) -> Simulation:
    """Return a server whose nodes have this much memory, each with a spare worker."""
    sim = Simulation(models, memory_reserve=0, device_memory_reserve=0, scales=scales)
    sim.machine[HOST] = head
    for name, total in nodes.items():
        sim.join(name, machine={HOST: total})
    sim.run_until_idle()
    return sim


def need(sim: Simulation, **needs: int) -> None:
    """Note what checks find, in bytes of the host."""
    sim.estimates |= {name: MemoryEstimate({HOST: PlaceNeed(bytes_)}) for name, bytes_ in needs.items()}


def places(sim: Simulation) -> dict[str, str]:
    """Return model → node, for those that are ready."""
    return {
        model.name: model.worker.node for model in sim.state.models.values() if model.worker and model.state == "ready"
    }


def checks(sim: Simulation) -> list[str]:
    """Return the nodes on which models were checked so far, in no order."""
    return [its.node for its in sim.workers.values() for each in its.commands if isinstance(each, CheckModel)]


def where(sim: Simulation) -> list[tuple[str, str]]:
    """Return (model, node) of each engine that answers."""
    return [(each.model.name, each.node) for each in sim.state.workers.values() if each.model and each.serves]
