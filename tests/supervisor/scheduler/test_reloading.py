"""A model that is loaded again with other options: which calls are answered, and which options it ends up with."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.models.memory import MemoryEstimate
from protocol.worker_states import WorkerState
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulation import Simulation, loaded

B, C = {"ctx_size": 8192}, {"ctx_size": 16384}
"""Other options than a model has that was loaded without any."""


def until(sim: Simulation, *states: WorkerState) -> str:
    """Advance until a worker is in one of these states; return it."""
    for _ in range(20):
        if found := sim.of_state(*states):
            return found[0]
        assert sim.advance()
    raise AssertionError(states)


def reloading(started: bool = True, **options: object) -> tuple[Simulation, str]:
    """A model that is to be loaded with other options, up to the point where that may fail; and its new worker."""
    sim = loaded("a", **options)
    sim.load("a", 701, options=B)
    return sim, until(sim, WorkerState.LOADING if started else WorkerState.CHECKING)


def refused(sim: Simulation, number: int) -> bool:
    return RequestKey("g1", number, 0) in sim.refusals


@pytest.mark.parametrize("started", [True, False])
def test_a_model_that_cannot_be_loaded_with_other_options_keeps_its_own(started: bool) -> None:
    sim, worker = reloading(started)
    key = sim.submit("a")
    sim.load_fails(worker)
    assert sim.refusals[RequestKey("g1", 701, 0)].code is Code.LOAD_FAILED
    assert key in sim.live
    sim.run_until_idle()
    assert sim.state.models["a"].spec == spec("a")
    assert sim.order == [key]
    assert not sim.state.models["a"].backoff.failure


@pytest.mark.parametrize("state", [WorkerState.CHECKING, WorkerState.LOADING])
def test_a_request_whose_own_options_fail_is_served_with_those_of_others(state: WorkerState) -> None:
    sim = Simulation()
    key = sim.submit("a", options=B)
    assert sim.state.models["a"].spec == spec("a", options=B)
    sim.load_fails(until(sim, state))
    assert key in sim.live
    sim.run_until_idle()
    assert (sim.order, sim.state.models["a"].spec) == ([key], spec("a"))
    assert not sim.state.models["a"].backoff.failure


def test_a_fallback_of_a_request_that_has_left_is_forgotten() -> None:
    sim = Simulation()
    sim.cancel(sim.submit("a", options=B))
    key = sim.submit("a")
    sim.load_fails(until(sim, WorkerState.LOADING))
    assert sim.refusals[key].code is Code.LOAD_FAILED


def test_the_former_options_are_tried_only_once() -> None:
    sim, worker = reloading()
    sim.load_fails(worker)
    worker = until(sim, WorkerState.LOADING)
    key = sim.submit("a")
    sim.load_fails(worker)
    assert sim.refusals[key].code is Code.LOAD_FAILED


def test_only_loads_of_the_failed_options_are_refused() -> None:
    sim, worker = reloading()
    sim.load("a", 702)
    sim.load("a", 703, plain=True)
    sim.load("a", 704, options=B)
    sim.load_fails(worker)
    sim.run_until_idle()
    assert [refused(sim, number) for number in (701, 702, 703, 704)] == [True, False, False, True]
    assert {("g1", 702), ("g1", 703)} <= set(sim.reports)


def test_pending_options_are_tried_when_those_before_them_have_failed() -> None:
    sim, worker = reloading()
    sim.load("a", 702, options=C)
    sim.load_fails(worker)
    assert [refused(sim, number) for number in (701, 702)] == [True, False]
    worker = until(sim, WorkerState.LOADING)
    assert sim.state.models["a"].spec == spec("a", options=C)
    sim.load_fails(worker)
    assert refused(sim, 702)
    sim.run_until_idle()
    assert sim.state.models["a"].spec == spec("a")
    assert sim.of_state(WorkerState.READY)


def test_a_load_is_answered_when_it_is_ready_although_another_reload_follows() -> None:
    sim, worker = reloading()
    sim.load("a", 702, options=C)
    sim.ready(worker)
    assert ("g1", 701) in sim.reports
    sim.load_fails(until(sim, WorkerState.LOADING))
    sim.run_until_idle()
    assert refused(sim, 702)
    assert sim.state.models["a"].spec == spec("a", options=B)


def test_a_pin_ends_with_its_refused_options() -> None:
    sim = loaded("a")
    sim.load("a", 701, options=B, pin=True)
    worker = until(sim, WorkerState.LOADING)
    assert sim.state.models["a"].pinned
    sim.load_fails(worker)
    sim.run_until_idle()
    assert not sim.state.models["a"].pinned


@pytest.mark.parametrize("state", [WorkerState.LOADING, WorkerState.CHECKING, WorkerState.CHECKED, None])
def test_a_model_unloaded_during_a_reload_does_not_come_back(state: WorkerState | None) -> None:
    sim, worker_id = reloading(started=state is not WorkerState.CHECKING)
    if state is None:
        sim.load_fails(worker_id)
        assert sim.state.models["a"].worker is None
    elif state is WorkerState.CHECKED:
        sim = loaded("a", "b", models=2)
        sim.load("a", 701, options=B)
        sim.scheduler.model_checked(until(sim, WorkerState.CHECKING), MemoryEstimate())
    assert sim.unload("a")
    sim.run_until_idle()
    assert ("g1", 901) in sim.reports
    assert "a" not in {worker.model.name for worker in sim.state.workers.values() if worker.model}
    assert not sim.state.models.get("a") or not sim.state.models["a"].keep_loaded


def test_a_reload_that_gave_way_to_another_model_does_not_roll_back_later() -> None:
    sim = loaded("a")
    sim.load("a", 701, options=B)
    sim.scheduler.call_abandoned("g1", 701)
    key = sim.submit("b")
    sim.run_until_idle()
    assert key in sim.order, "nothing waits for the other one any more"
    sim.finish(key)
    sim.pass_time(3600)
    key = sim.submit("a")
    sim.load_fails(until(sim, WorkerState.LOADING))
    assert sim.refusals[key].code is Code.LOAD_FAILED


def test_an_engine_is_not_ended_again_for_options_that_were_just_refused() -> None:
    sim, worker = reloading()
    sim.load_fails(worker)
    sim.load("a", 702, options=B, pin=True)
    assert refused(sim, 702), "also while it is rolled back"
    sim.run_until_idle()
    serving = sim.serving("a")
    sim.pass_time(20)
    sim.load("a", 703, options=B)
    first, again = (sim.refusals[RequestKey("g1", number, 0)] for number in (701, 703))
    assert (again.code, again.message) == (first.code, first.message)
    assert again.retry_after == pytest.approx(40, abs=1)
    assert not sim.state.models["a"].pinned
    sim.run_until_idle()
    assert sim.serving("a") == serving
    sim.pass_time(41)
    sim.load("a", 704, options=B)
    assert not refused(sim, 704)
    until(sim, WorkerState.LOADING)


@pytest.mark.parametrize("options", [B, C])
def test_other_options_are_tried_at_once_and_refused_ones_after_an_unload(options: dict[str, int]) -> None:
    sim, worker = reloading()
    sim.load_fails(worker)
    sim.run_until_idle()
    if options is B:
        assert sim.unload("a")
        sim.run_until_idle()
    sim.load("a", 702, options=options)
    sim.run_until_idle()
    assert ("g1", 702) in sim.reports
