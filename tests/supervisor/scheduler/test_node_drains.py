"""What the models of a node do when it is drained: their streams end there, and everything else waits for another node."""

from __future__ import annotations

from protocol.failures import Code
from protocol.models.nodes import HEAD
from tests.supervisor.scheduler.simulation import Simulation


def node_of(sim: Simulation, model: str) -> str:
    """Return where the engine of a model answers, empty if none does."""
    known = sim.scheduler.view.model(model)
    worker = sim.scheduler.view.worker(known.worker) if known is not None and known.serves else None
    return worker.node if worker is not None else ""


def drained(sim: Simulation, model: str) -> str:
    """Drain the node of a model; return the other one."""
    node = node_of(sim, model)
    sim.drain(node)
    return "gpu2" if node == HEAD else HEAD


def cluster(model: str) -> Simulation:
    """A server with two machines, and a model that is loaded on one of them."""
    sim = Simulation()
    sim.join("gpu2")
    sim.load(model, 1)
    sim.run_until_idle()
    return sim


def test_an_idle_model_moves_from_a_node_that_drains() -> None:
    sim = cluster("a")
    other = drained(sim, "a")
    sim.run_until_idle()
    assert node_of(sim, "a") == other
    assert [note.fields["why"] for note in sim.notes if note.event == "draining"] == ["its node is drained"]
    assert sim.state.counters.get("evictions", 0) == 0


def test_its_streams_end_first_and_later_requests_wait_for_the_other_node() -> None:
    sim = cluster("a")
    stream = sim.submit("a")
    other = drained(sim, "a")
    later = sim.submit("a")
    sim.run_until_idle()
    assert (sim.order, node_of(sim, "a") != other) == ([stream], True)
    sim.finish(stream)
    sim.run_until_idle()
    assert (sim.order, node_of(sim, "a")) == ([stream, later], other)


def test_a_drain_that_is_called_off_before_the_streams_have_ended_moves_nothing() -> None:
    sim = cluster("a")
    before = node_of(sim, "a")
    stream = sim.submit("a")
    drained(sim, "a")
    later = sim.submit("a")
    sim.drain(before, draining=False)
    sim.run_until_idle()
    assert (sim.order, node_of(sim, "a")) == ([stream, later], before)


def test_a_model_that_no_other_node_may_run_is_unloaded_and_its_requests_are_told_why() -> None:
    sim = cluster("a")
    other = "gpu2" if node_of(sim, "a") == HEAD else HEAD
    sim.drain(other)
    assert drained(sim, "a") == other
    sim.run_until_idle()
    assert sim.scheduler.view.model("a") is None, "it is not tried without a request"
    assert not [note for note in sim.notes if note.event == "load failed"]
    key = sim.submit("a")
    sim.run_until_idle()
    failure = sim.refusals[key]
    assert failure.code is Code.NO_NODE
    assert "its models are leaving it" in failure.message
    sim.drain(other, draining=False)
    sim.load("a", 2)
    sim.run_until_idle()
    assert node_of(sim, "a") == other
