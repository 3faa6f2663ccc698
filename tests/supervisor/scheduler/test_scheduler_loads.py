"""Loads and unloads that clients ask the scheduler for, and the last use of each model."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.messages.engines import StartEngine
from protocol.worker_states import WorkerState
from supervisor.scheduler.scheduled_model import needs_new_engine
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulation import Simulation, loaded


def test_load_is_idempotent_and_reloads_for_other_options() -> None:
    sim = loaded("a")
    worker = sim.serving("a")
    sim.load("a", 700)
    assert ("g1", 700) in sim.reports
    stream = sim.submit("a")
    sim.load("a", 701, options={"ctx_size": 8192})
    sim.run_until_idle()
    assert ("g1", 701) not in sim.reports
    assert sim.serving("a") == worker
    sim.finish(stream)
    sim.run_until_idle()
    assert ("g1", 701) in sim.reports
    assert sim.serving("a") != worker
    loads = [command for command in sim.workers[sim.serving("a")].commands if isinstance(command, StartEngine)]
    assert loads[-1].spec.options == {"ctx_size": 8192}


def test_unload_lets_the_stream_end_and_answers_when_it_is_gone() -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    assert sim.unload("a")
    sim.run_until_idle()
    assert ("g1", 901) not in sim.reports
    sim.finish(stream)
    sim.run_until_idle()
    assert sim.reports["g1", 901] == ["a"]
    assert not sim.unload("a", 902)


@pytest.mark.parametrize("models", [1, 2])
def test_unloading_while_loading_refuses_what_waits(models: int) -> None:
    sim = Simulation(models)
    key = sim.submit("a")
    while not sim.of_state(WorkerState.LOADING):
        assert sim.advance()
    assert sim.unload("a")
    assert sim.refusals[key].code is Code.UNLOADED


def test_specs_that_differ_only_in_bookkeeping_are_the_same_engine() -> None:
    assert not needs_new_engine(spec("a"), spec("a", labels=["x"], size=3))
    assert needs_new_engine(spec("a"), spec("a", options={"ctx_size": 1}))


def test_a_load_of_a_loaded_model_counts_as_a_use() -> None:
    sim = loaded("a", "b", models=2)
    sim.pass_time(1.0)
    sim.load("a", 801)
    assert sim.scheduler.view.used() == ["a", "b"]
    waiting = sim.submit("c")
    sim.run_until_idle()
    assert waiting in sim.order
    assert sim.state.models.get("b") is None


def test_an_end_that_is_reported_late_is_not_the_last_use() -> None:
    """A worker that waits for a processor may report it after another model has been used and has answered."""
    sim = loaded("a", "b", models=2)
    sim.pass_time(1.0)
    late = sim.submit("a")
    sim.pass_time(1.0)
    ended_at = sim.now
    sim.pass_time(1.0)
    sim.finish(sim.submit("b"))
    sim.pass_time(1.0)
    sim.finish(late, ended_at=ended_at)
    assert sim.scheduler.view.used() == ["b", "a"]


def test_the_last_use_is_remembered_after_an_unload() -> None:
    sim = loaded("a", "b", models=2)
    sim.pass_time(1.0)
    sim.finish(sim.submit("b"))
    sim.unload("b", 801)
    sim.run_until_idle()
    assert "b" not in sim.state.models
    assert sim.scheduler.view.used() == ["b", "a"]
    sim.pass_time(1.0)
    sim.load("a", 802)
    assert sim.scheduler.view.used() == ["a", "b"]
    sim.scheduler.forget_use("b")
    assert sim.scheduler.view.used() == ["a"]
