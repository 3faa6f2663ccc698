"""Unloads: what they end, which calls are answered, and that the model does not come back by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.peers import Shutdown
from protocol.models.memory import MemoryEstimate
from protocol.worker_states import WorkerState
from supervisor.scheduler.inputs import ModelTarget
from tests.supervisor.scheduler.simulation import Simulation, loaded, spec

LOADER = RequestKey("g1", 700, 0)


def until(sim: Simulation, state: WorkerState) -> str:
    """Advance until a worker is in this state; return it."""
    while not (found := sim.of_state(state)):
        assert sim.advance()
    return found[0]


def without_a_worker(model: str) -> Simulation:
    """There is no worker yet that could check it."""
    sim = Simulation()
    sim.load(model, 700)
    assert sim.of_state(WorkerState.SPAWNED)
    return sim


def checking(model: str) -> Simulation:
    sim = Simulation()
    until(sim, WorkerState.SPARE)
    sim.load(model, 700)
    assert sim.of_state(WorkerState.CHECKING)
    return sim


def waiting_for_capacity(model: str) -> Simulation:
    """It is checked, and waits until another model is unloaded."""
    sim = loaded("other")
    sim.submit("other")
    sim.load(model, 700)
    until(sim, WorkerState.CHECKED)
    return sim


def downloading(model: str) -> Simulation:
    """It is being downloaded."""
    sim = Simulation()
    sim.scheduler.load_requested("g1", 700, ModelTarget(model, "llm", None), sim.now)
    sim.settle()
    assert sim.fetches == [model]
    return sim


def starting(model: str) -> Simulation:
    sim = checking(model)
    until(sim, WorkerState.LOADING)
    return sim


def reloading(model: str) -> Simulation:
    """Its former worker is being stopped."""
    sim = loaded(model)
    sim.load(model, 699, options={"ctx_size": 8192})
    until(sim, WorkerState.LEAVING)
    sim.load(model, 700)
    return sim


SITUATIONS = [without_a_worker, checking, waiting_for_capacity, downloading, starting, reloading]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_unload_ends_a_load_that_is_under_way(situation: Callable[[str], Simulation]) -> None:
    sim = situation("a")
    key = sim.submit("a")
    assert sim.unload("a")
    assert {sim.refusals[LOADER].code, sim.refusals[key].code} == {Code.UNLOADED}
    assert sim.refusals[LOADER].model == "a"
    sim.run_until_idle()
    assert sim.reports["g1", 901] == ["a"]
    sim.scheduler.download_ended("a", spec("a"), None, sim.now)
    sim.settle()
    sim.run_until_idle()
    gone = sim.state.models.get("a")
    assert gone is None or gone.worker is None
    assert not sim.unload("a", 902), "nothing is left of it"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_it_is_loaded_again_for_a_later_request(situation: Callable[[str], Simulation]) -> None:
    sim = situation("a")
    assert sim.unload("a")
    key = sim.submit("a")
    for running in [running for worker in sim.workers.values() for running in worker.running]:
        sim.finish(running)
    sim.run_until_idle()
    assert key in sim.order


def test_a_model_that_is_only_being_checked_is_unloaded_at_once() -> None:
    sim = checking("a")
    worker = sim.of_state(WorkerState.CHECKING)[0]
    assert sim.unload("a")
    assert sim.reports["g1", 901] == ["a"], "there is no engine to wait for"
    assert any(isinstance(command, Shutdown) for command in sim.workers[worker].commands), "a check may take long"
    sim.scheduler.model_checked(worker, MemoryEstimate())
    sim.load_fails(worker)
    sim.run_until_idle()
    assert sim.state.settled


def test_a_worker_that_has_checked_a_model_is_a_spare_again() -> None:
    sim = waiting_for_capacity("a")
    worker = sim.of_state(WorkerState.CHECKED)[0]
    assert sim.unload("a")
    assert worker in sim.of_state(WorkerState.SPARE)


def test_options_of_a_load_do_not_survive_the_unload() -> None:
    sim = Simulation()
    until(sim, WorkerState.SPARE)
    sim.load("a", 700, options={"ctx_size": 8192})
    assert sim.of_state(WorkerState.CHECKING)
    assert sim.unload("a")
    sim.submit("a")
    sim.run_until_idle()
    assert sim.state.models["a"].spec == spec("a")


def test_an_unload_ends_a_load_with_other_options_before_it_has_begun() -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    sim.load("a", 700, options={"ctx_size": 8192})
    assert sim.unload("a")
    assert sim.refusals[LOADER].code is Code.UNLOADED
    sim.finish(stream)
    sim.run_until_idle()
    assert sim.reports["g1", 901] == ["a"]
    assert "a" not in sim.state.models


def test_the_worker_of_an_abandoned_check_becomes_a_spare() -> None:
    sim = Simulation()
    until(sim, WorkerState.SPARE)
    key = sim.submit("a")
    until(sim, WorkerState.CHECKING)
    sim.cancel(key)
    sim.run_until_idle()
    assert sim.of_state(WorkerState.SPARE)
    assert not sim.of_state(WorkerState.CHECKED)
    assert sim.state.settled


@pytest.mark.parametrize("gone", ["its client", "its gateway"])
def test_an_unload_goes_on_without_its_caller(gone: str) -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    sim.scheduler.unload_requested("g2", 901, "a")
    sim.settle()
    if gone == "its client":
        sim.scheduler.call_abandoned("g2", 901)
    else:
        sim.scheduler.gateway_gone("g2")
    sim.settle()
    sim.finish(stream)
    sim.run_until_idle()
    assert "a" not in sim.state.models
    assert not sim.reports.keys() & {("g2", 901)}


def with_cancelled_request(**limits: object) -> Simulation:
    """Its engine works on although the client is gone."""
    sim = loaded("a", **limits)
    sim.keep_running_abandoned(sim.submit("a"))
    return sim


def was_stopped(sim: Simulation, model: str = "a") -> bool:
    """Whether the model's worker was told to stop."""
    return any(isinstance(command, Shutdown) for command in sim.workers[sim.serving(model)].commands)


def test_an_unload_does_not_wait_for_cancelled_requests() -> None:
    sim = with_cancelled_request()
    assert sim.unload("a")
    assert was_stopped(sim)
    assert [note.event for note in sim.notes][-1] == "engine ended, the clients of its requests are gone"
    sim.run_until_idle()
    assert sim.reports["g1", 901] == ["a"]
    assert sim.scheduler.view.busy == 0
    assert not any("lost" in note.event for note in sim.notes)


def test_an_engine_may_die_before_its_unload_arrives() -> None:
    sim = with_cancelled_request()
    assert sim.unload("a")
    sim.engine_dies(sim.serving("a"))
    assert sim.scheduler.view.busy == 0
    sim.run_until_idle()
    assert sim.reports["g1", 901] == ["a"]


def test_evictions_and_reloads_do_not_wait_for_cancelled_requests() -> None:
    sim = with_cancelled_request()
    key = sim.submit("b")
    assert not was_stopped(sim), "the other one is still to be checked"
    sim.run_until_idle()
    assert sim.order[-1] == key
    sim = with_cancelled_request()
    sim.load("a", 700, options={"ctx_size": 8192})
    sim.run_until_idle()
    assert ("g1", 700) in sim.reports


def test_an_unload_waits_for_requests_with_a_client() -> None:
    sim = loaded("a")
    wanted, unwanted = sim.submit("a"), sim.submit("a")
    sim.keep_running_abandoned(unwanted)
    assert sim.unload("a")
    assert not was_stopped(sim)
    sim.finish(wanted)
    assert was_stopped(sim)


def test_an_abandoned_attempt_keeps_its_slot_while_the_model_stays() -> None:
    sim = with_cancelled_request()
    assert sim.state.settled
    beside, behind = sim.submit("a"), sim.submit("a")
    assert sim.order[-1] == beside, "its slot is in use, whatever for"
    sim.finish(sim.order[0])
    assert sim.order[-1] == behind
    assert sim.unload("a")
    assert not was_stopped(sim)


def draining_for_an_unload() -> Simulation:
    sim = loaded("a")
    sim.submit("a")
    assert sim.unload("a")
    return sim


def draining_for_another() -> Simulation:
    sim = loaded("a")
    sim.submit("a")
    sim.submit("b")
    return sim


def draining_for_shutdown() -> Simulation:
    sim = loaded("a")
    sim.submit("a")
    sim.scheduler.close()
    sim.settle()
    return sim


@pytest.mark.parametrize("gone", [Simulation.engine_dies, Simulation.worker_dies])
@pytest.mark.parametrize(
    ("situation", "why"),
    [
        (draining_for_an_unload, "an unload was requested"),
        (draining_for_another, "it is evicted for another model"),
        (draining_for_shutdown, "the server stops"),
    ],
)
def test_an_engine_lost_while_draining_is_not_announced_to_restart(
    situation: Callable[[], Simulation], why: str, gone: Callable[[Simulation, str], object]
) -> None:
    sim = situation()
    gone(sim, sim.serving("a"))
    command = [note for note in sim.notes if note.event.startswith("engine lost")]
    assert [(note.event, note.fields["unload_reason"]) for note in command] == [
        ("engine lost, its model was leaving", why)
    ]


def test_an_engine_lost_while_ready_is_announced_to_restart_and_does() -> None:
    sim = loaded("a")
    sim.engine_dies(sim.serving("a"))
    assert [note.event for note in sim.notes][-1] == "engine lost, it is started again"
    sim.pass_time(60.0)
    sim.run_until_idle()
    assert sim.of_state(WorkerState.READY)


def test_a_worker_lost_during_an_abandoned_check_is_not_announced_to_restart() -> None:
    sim = Simulation()
    until(sim, WorkerState.SPARE)
    key = sim.submit("a")
    sim.cancel(key)
    sim.worker_dies(sim.of_state(WorkerState.CHECKING)[0])
    assert [note.event for note in sim.notes][-1] == "engine lost, it is not needed"
