"""Nodes of the server: what each has of its own, and what follows when one joins or is lost."""

from __future__ import annotations

import pytest

from protocol.messages.engines import LoadStage
from protocol.models.memory import HOST
from protocol.models.nodes import HEAD, NodeNeeds
from protocol.worker_states import WorkerState
from supervisor.scheduler.nodes.suitability import NODE_RETURN_S
from tests.supervisor.scheduler.simulated_nodes import cluster, need, places
from tests.supervisor.scheduler.simulation import Simulation


def spares(sim: Simulation) -> dict[str, int]:
    """Return how many workers each node has."""
    nodes = [each.node for each in sim.scheduler.view.workers()]
    return {node: nodes.count(node) for node in sorted(set(nodes))}


def test_each_node_has_its_own_spare_workers() -> None:
    sim = Simulation()
    sim.join("gpu2")
    sim.run_until_idle()
    assert spares(sim) == {HEAD: 1, "gpu2": 1}


def test_a_node_that_is_left_takes_its_workers_with_it() -> None:
    sim = Simulation()
    sim.join("gpu2")
    sim.run_until_idle()
    sim.node_dies("gpu2")
    assert spares(sim) == {HEAD: 1}
    assert sim.scheduler.view.counters.get("hello_timeouts", 0) == 0


def test_a_node_can_be_left_before_its_workers_have_reported() -> None:
    sim = Simulation()
    sim.join("gpu2")
    sim.node_dies("gpu2")
    assert sim.scheduler.view.spawn_problem is None
    assert spares(sim) == {HEAD: 1}


def test_the_head_never_leaves() -> None:
    sim = Simulation()
    sim.run_until_idle()
    sim.node_dies(HEAD)
    sim.run_until_idle()
    assert spares(sim) == {HEAD: 1}


def test_spare_workers_leave_a_node_that_drains() -> None:
    sim = Simulation()
    sim.join("gpu2")
    sim.run_until_idle()
    sim.drain("gpu2")
    sim.run_until_idle()
    assert spares(sim) == {HEAD: 1}
    sim.drain("gpu2", draining=False)
    assert spares(sim) == {HEAD: 1, "gpu2": 1}


def test_the_memory_of_a_node_is_its_own() -> None:
    sim = Simulation()
    sim.join("gpu2", machine={HOST: 100})
    before = sim.scheduler.view.memory_changes(HEAD)
    sim.read_memory("gpu2")
    assert sim.state.nodes["gpu2"].memory.capacities[HOST].total == 100
    assert sim.state.nodes[HEAD].memory.capacities == {}
    assert sim.scheduler.view.memory_changes(HEAD) == before


def test_what_is_logged_of_a_model_names_its_node_if_there_are_several() -> None:
    for several in (False, True):
        sim = Simulation()
        if several:
            sim.join("gpu2")
        sim.submit("a")
        sim.run_until_idle()
        (ready,) = [note.fields for note in sim.notes if note.event == "model ready"]
        assert ready.get("node") == (HEAD if several else None)


def test_the_models_of_a_lost_node_are_loaded_elsewhere_at_once_and_that_is_not_their_failure() -> None:
    sim = cluster(head=100, gpu2=60)
    need(sim, a=50)
    sim.load("a", size=50)
    sim.run_until_idle()
    assert places(sim) == {"a": "gpu2"}
    running = sim.submit("a")
    assert sim.node_dies("gpu2") == [running]
    again = sim.retry(running)
    sim.run_until_idle()
    assert places(sim) == {"a": HEAD}
    assert again in sim.order
    assert sim.scheduler.view.failed_models(sim.now) == []
    assert sim.scheduler.view.counters.get("engine_deaths", 0) == 0
    assert sim.deaths == []


def test_a_model_whose_node_is_lost_during_its_load_is_loaded_elsewhere() -> None:
    sim = cluster(head=100, gpu2=60)
    need(sim, a=50)
    sim.load("a", size=50)
    sim.advance_to(WorkerState.LOADING)
    sim.node_dies("gpu2")
    sim.run_until_idle()
    assert places(sim) == {"a": HEAD}
    assert ("g1", 900) in sim.reports


def test_a_model_that_only_a_lost_node_suits_is_loaded_again_when_it_is_back() -> None:
    sim = cluster(gpu2=60)
    sim.load("a", needs=NodeNeeds(nodes=["gpu2"]))
    sim.run_until_idle()
    sim.node_dies("gpu2")
    sim.pass_time(100.0)
    assert places(sim) == {}
    sim.join("gpu2", machine={HOST: 60})
    sim.run_until_idle()
    assert places(sim) == {"a": "gpu2"}


def refused(sim: Simulation) -> list[str]:
    """Return why requests were refused so far."""
    return [failure.message for failure in sim.refusals.values()]


def test_requests_wait_for_a_lost_node_that_alone_suits_their_model() -> None:
    sim = cluster(gpu2=60)
    sim.load("a", needs=NodeNeeds(nodes=["gpu2"]))
    sim.run_until_idle()
    sim.node_dies("gpu2")
    sim.submit("a")
    sim.pass_time(NODE_RETURN_S - 2.0)
    assert refused(sim) == []
    [load] = sim.scheduler.view.loads(sim.now)
    assert (load.stage, load.node, load.waiting) == (LoadStage.WAITING_FOR_NODE, "gpu2", 1)
    assert (load.done, load.total, load.unit) == (NODE_RETURN_S - 2, NODE_RETURN_S, "s")
    sim.join("gpu2", machine={HOST: 60})
    assert [each.stage for each in sim.scheduler.view.loads(sim.now)] != [LoadStage.WAITING_FOR_NODE]
    sim.run_until_idle()
    assert places(sim) == {"a": "gpu2"}
    assert len(sim.order) == 1


@pytest.mark.parametrize("needs", [NodeNeeds(nodes=["gpu2"]), NodeNeeds(backends=["llamacpp:cuda"])], ids=repr)
def test_they_are_refused_with_its_name_when_it_does_not_return(needs: NodeNeeds) -> None:
    sim = cluster()
    sim.join("gpu2", machine={HOST: 60}, backends=["llamacpp:cuda"])
    sim.load("a", needs=needs)
    sim.run_until_idle()
    sim.node_dies("gpu2")
    sim.submit("a")
    sim.pass_time(NODE_RETURN_S + 2.0)
    [why] = refused(sim)
    assert "node gpu2, which suits it, was lost 3" in why
    assert "start it again" in why
    sim.submit("a")
    sim.run_until_idle()
    assert len(refused(sim)) == 2, "the next one does not wait"


def test_a_node_that_drained_or_that_an_operator_drains_afterwards_is_not_waited_for() -> None:
    for drained_first in (True, False):
        sim = cluster(gpu2=60)
        sim.load("a", needs=NodeNeeds(nodes=["gpu2"]))
        sim.run_until_idle()
        if drained_first:
            sim.drain("gpu2")
        sim.node_dies("gpu2")
        if not drained_first:
            sim.drain("gpu2")
        sim.submit("a")
        sim.run_until_idle()
        assert len(refused(sim)) == 1


def test_files_on_their_way_to_a_lost_node_are_forgotten() -> None:
    sim = cluster(head=100, gpu2=60)
    sim.lacking.add(("a", "gpu2"))
    sim.load("a", size=50, needs=NodeNeeds(nodes=["gpu2", HEAD]))
    sim.node_dies("gpu2")
    sim.run_until_idle()
    assert places(sim) == {"a": HEAD}
