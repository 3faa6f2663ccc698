"""The models of a node that drains are loaded elsewhere, and serve meanwhile."""

from __future__ import annotations

from protocol.failures import Code
from protocol.models.memory import HOST
from protocol.models.nodes import HEAD, NodeNeeds
from protocol.worker_states import WorkerState
from supervisor.scheduler.policy import FixedPolicies, ModelPolicy
from tests.supervisor.scheduler.simulated_nodes import cluster, need, where
from tests.supervisor.scheduler.simulation import Simulation


def test_a_model_leaves_a_node_that_drains_when_it_is_loaded_elsewhere_and_serves_meanwhile() -> None:
    sim = cluster(head=100, gpu2=60)
    need(sim, a=50)
    sim.load("a", size=50)
    sim.run_until_idle()
    before = sim.submit("a")
    sim.drain("gpu2")
    during = sim.submit("a")
    assert during in sim.order, "it serves on"
    sim.run_until_idle()
    assert sorted(where(sim)) == [("a", "gpu2"), ("a", HEAD)], "it has still requests to answer there"
    after = sim.submit("a")
    sim.finish(before)
    sim.finish(during)
    sim.run_until_idle()
    assert where(sim) == [("a", HEAD)]
    sim.finish(after)
    assert not sim.refusals
    assert sim.scheduler.view.counters.get("evictions", 0) == 0
    (left,) = [note.fields for note in sim.notes if note.event == "model leaves its node, which drains"]
    assert (left["node"], left["reason"]) == ("gpu2", "it was loaded on another node")


def test_a_model_that_no_other_node_can_take_leaves_when_its_requests_have_ended() -> None:
    sim = cluster(head=10, gpu2=60)
    need(sim, a=50)
    sim.load("a", size=50)
    sim.run_until_idle()
    running = sim.submit("a")
    sim.drain("gpu2")
    sim.run_until_idle()
    assert where(sim) == [("a", "gpu2")]
    sim.finish(running)
    sim.run_until_idle()
    assert where(sim) == []
    key = sim.submit("a")
    sim.run_until_idle()
    assert sim.refusals[key].code is Code.INSUFFICIENT_MEMORY


def test_requests_that_wait_for_a_model_that_no_node_takes_beside_others_evict_one() -> None:
    sim = cluster(head=60, gpu2=60)
    need(sim, a=50, b=50)
    sim.load("b", 901, needs=NodeNeeds(nodes=[HEAD]))
    sim.run_until_idle()
    sim.load("a", 902, size=50)
    sim.run_until_idle()
    sim.drain("gpu2")
    sim.run_until_idle()
    assert where(sim) == [("b", HEAD)], "the move alone evicts nothing"
    key = sim.submit("a")
    sim.run_until_idle()
    assert where(sim) == [("a", HEAD)]
    assert key in sim.order


def test_a_model_that_is_loading_on_a_node_that_drains_is_moved_when_it_is_ready() -> None:
    sim = cluster(head=100, gpu2=60)
    need(sim, a=50)
    sim.load("a", size=50)
    sim.advance_to(WorkerState.LOADING)
    sim.drain("gpu2")
    sim.run_until_idle()
    assert where(sim) == [("a", HEAD)]


def test_a_node_that_does_not_drain_any_more_keeps_its_models() -> None:
    sim = cluster(head=100, gpu2=60)
    need(sim, a=50)
    sim.load("a", size=50)
    sim.run_until_idle()
    running = sim.submit("a")
    sim.drain("gpu2")
    sim.drain("gpu2", draining=False)
    sim.run_until_idle()
    sim.finish(running)
    sim.run_until_idle()
    assert len(where(sim)) == 1
    sim.pass_time(60.0)
    sim.run_until_idle()
    assert len(where(sim)) == 1


def test_the_head_can_drain_as_well() -> None:
    sim = cluster(head=60, gpu2=100)
    need(sim, a=50)
    sim.load("a", size=50)
    sim.run_until_idle()
    assert where(sim) == [("a", HEAD)]
    sim.drain(HEAD)
    sim.run_until_idle()
    assert where(sim) == [("a", "gpu2")]
    sim.load("b", 903)
    sim.run_until_idle()
    assert ("b", "gpu2") in where(sim)


def test_with_several_engines_only_those_on_the_node_move() -> None:
    policies = FixedPolicies({"a": ModelPolicy(min_replicas=2, max_replicas=2)})
    sim = Simulation(9, policies=policies, memory_reserve=0, device_memory_reserve=0)
    sim.machine[HOST] = 60
    for name in ("gpu1", "gpu2"):
        sim.join(name, machine={HOST: 60})
    need(sim, a=50)
    sim.run_until_idle()
    sim.load("a", size=50)
    sim.run_until_idle()
    first, second = sorted(node for _, node in where(sim))
    sim.drain(first)
    sim.run_until_idle()
    assert len(where(sim)) == 2
    assert first not in {node for _, node in where(sim)}
    assert second in {node for _, node in where(sim)}


def test_a_model_that_no_other_node_may_run_is_unloaded_and_its_requests_are_told_why() -> None:
    sim = cluster(head=100, gpu2=100)
    sim.drain(HEAD)
    sim.load("a")
    sim.run_until_idle()
    sim.drain("gpu2")
    sim.pass_time(1.0)
    sim.run_until_idle()
    assert sim.scheduler.view.model("a") is None, "it is not tried without a request"
    assert not [note for note in sim.notes if note.event == "load failed"]
    key = sim.submit("a")
    sim.run_until_idle()
    failure = sim.refusals[key]
    assert failure.code is Code.NO_NODE
    assert "its models are leaving it" in failure.message
    sim.drain(HEAD, draining=False)
    sim.load("a", 902)
    sim.run_until_idle()
    assert where(sim) == [("a", HEAD)]
