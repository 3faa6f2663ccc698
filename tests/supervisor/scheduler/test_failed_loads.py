"""What a failed load leaves behind: nothing of a model that was unknown before, and little of others."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.worker_states import WorkerState
from supervisor.scheduler.backoff import FORGIVEN_AFTER_PAUSES, BackoffPolicy
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.reconcile import MAX_REMEMBERED_FAILURES
from supervisor.scheduler.state import MAX_PAST_USES
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulation import Simulation, loaded

FORGIVEN_S = FORGIVEN_AFTER_PAUSES * BackoffPolicy().most


def start_load(sim: Simulation, model: str, number: int = 700, **more: object) -> RequestKey:
    """Ask for a model that is not downloaded."""
    sim.scheduler.load_requested("g1", number, ModelTarget(model, "llm", None, **more), sim.now)  # type: ignore[arg-type]
    sim.settle()
    return RequestKey("g1", number, 0)


def end_download(sim: Simulation, model: str, failure: Failure | None = None, **options: object) -> None:
    sim.scheduler.download_ended(model, None if failure else spec(model, **options), failure, sim.now)
    sim.settle()


def fail_load(sim: Simulation, model: str) -> None:
    """Ask for a model whose engine does not start."""
    sim.submit(model)
    while not sim.of_state(WorkerState.LOADING):
        assert sim.advance()
    sim.load_fails(sim.of_state(WorkerState.LOADING)[0])
    sim.run_until_idle()


@pytest.mark.parametrize("code", [Code.DOWNLOAD_FAILED, Code.OFFLINE, Code.OVERLOADED, Code.MODEL_NOT_FOUND])
def test_a_failed_download_leaves_nothing_of_a_model_that_was_not_known(code: Code) -> None:
    sim = Simulation()
    key = start_load(sim, "nobody/nothing", provisional=True)
    end_download(sim, "nobody/nothing", Failure(code, "no"))
    assert sim.refusals[key].code is code
    assert not sim.state.models
    assert sim.forgotten == ["nobody/nothing"]


@pytest.mark.parametrize("started", [True, False])
def test_a_failed_start_leaves_nothing_of_a_model_that_was_not_known(started: bool) -> None:
    sim = Simulation()
    start_load(sim, "nobody/nothing", provisional=True)
    end_download(sim, "nobody/nothing")
    state = WorkerState.LOADING if started else WorkerState.CHECKING
    while not sim.of_state(state):
        assert sim.advance()
    sim.load_fails(sim.of_state(state)[0])
    sim.run_until_idle()
    assert not sim.state.models
    assert sim.forgotten == ["nobody/nothing"]


def test_a_model_stays_known_that_was_downloaded_for_a_load_that_was_given_up() -> None:
    sim = Simulation()
    start_load(sim, "nobody/nothing", provisional=True)
    sim.scheduler.call_abandoned("g1", 700)
    end_download(sim, "nobody/nothing")
    assert not sim.state.models
    assert sim.forgotten == []


def test_a_model_that_was_loaded_once_stays_known() -> None:
    sim = Simulation()
    start_load(sim, "new", provisional=True)
    end_download(sim, "new")
    sim.run_until_idle()
    assert sim.unload("new")
    sim.run_until_idle()
    assert "new" not in sim.state.models
    assert sim.forgotten == []


@pytest.mark.parametrize(("repeated", "evicts"), [(True, False), (False, True)])
def test_a_load_that_the_server_repeats_after_a_failure_evicts_no_other_model(repeated: bool, evicts: bool) -> None:
    sim = Simulation(models=1)
    fail_load(sim, "failing")
    sim.load("good", 701)
    sim.run_until_idle()
    target = ModelTarget("failing", "llm", spec("failing"))
    sim.scheduler.load_requested("g1", 702, target, sim.now, repeated=repeated)
    sim.settle()
    sim.run_until_idle()
    assert ("good" in sim.state.models) is not evicts
    refused = sim.refusals.get(RequestKey("g1", 702, 0))
    assert (refused is None) is evicts
    assert refused is None or "displaces no other model" in refused.message


def test_a_failure_is_forgotten_after_a_while() -> None:
    sim = Simulation()
    fail_load(sim, "a")
    assert sim.state.models["a"].backoff.failure
    sim.pass_time(FORGIVEN_S + 1.0)
    assert not sim.state.models


def test_a_bounded_number_of_failures_is_remembered() -> None:
    sim = Simulation()
    for number in range(MAX_REMEMBERED_FAILURES + 5):
        fail_load(sim, f"m{number}")
        sim.pass_time(0.01)
    assert len(sim.state.models) == MAX_REMEMBERED_FAILURES
    assert "m0" not in sim.state.models


def test_a_bounded_number_of_past_uses_is_remembered() -> None:
    sim = Simulation()
    for number in range(MAX_PAST_USES + 5):
        sim.state.past_use[f"old{number}"] = float(-number)
    sim = loaded("a")
    sim.state.past_use = {f"old{number}": number - 1000.0 for number in range(MAX_PAST_USES)}
    sim.finish(sim.submit("a"))
    sim.unload("a")
    sim.run_until_idle()
    assert len(sim.state.past_use) == MAX_PAST_USES
    assert "old0" not in sim.state.past_use
    assert "a" in sim.state.past_use


def test_options_of_a_load_end_with_it() -> None:
    sim = Simulation()
    start_load(sim, "a", options={"ctx_size": 1024})
    assert sim.scheduler.view.requested_options("a") == {"ctx_size": 1024}
    assert sim.unload("a")
    assert sim.scheduler.view.requested_options("a") == {}


@pytest.mark.parametrize("code", [Code.OFFLINE, Code.OVERLOADED])
def test_options_of_a_load_end_when_its_download_is_refused(code: Code) -> None:
    sim = Simulation()
    start_load(sim, "a", options={"ctx_size": 1024})
    end_download(sim, "a", Failure(code, "no"))
    assert sim.scheduler.view.requested_options("a") == {}


def test_options_of_the_last_load_that_waits_count() -> None:
    sim = Simulation()
    start_load(sim, "a", 700, options={"ctx_size": 1024})
    start_load(sim, "a", 701, options={"ctx_size": 2048})
    start_load(sim, "a", 702)
    assert sim.scheduler.view.requested_options("a") == {"ctx_size": 2048}
    sim.scheduler.call_abandoned("g1", 701)
    assert sim.scheduler.view.requested_options("a") == {"ctx_size": 1024}


def test_a_request_does_not_take_back_the_options_of_a_load_that_waits() -> None:
    sim = Simulation()
    sim.load("a", 700, options={"ctx_size": 1024})
    key = sim.submit("a")
    sim.run_until_idle()
    assert key in sim.order
    assert sim.state.models["a"].spec == spec("a", options={"ctx_size": 1024})


def test_a_pin_ends_with_the_load_that_failed() -> None:
    sim = Simulation()
    sim.load("a", 700, pin=True)
    while not sim.of_state(WorkerState.LOADING):
        assert sim.advance()
    sim.load_fails(sim.of_state(WorkerState.LOADING)[0])
    sim.run_until_idle()
    sim.pass_time(1.0)
    sim.submit("a")
    sim.run_until_idle()
    assert not sim.state.models["a"].pinned


@pytest.mark.parametrize("code", [Code.MODEL_UNUSABLE, Code.INVALID_REQUEST])
def test_what_a_check_refuses_is_reported_until_it_passes(code: Code) -> None:
    """Also for wrong options in the configuration: the waiting requests did not choose them, so they are not wrong."""
    sim = Simulation()
    sim.submit("broken")
    while not sim.of_state(WorkerState.CHECKING):
        assert sim.advance()
    sim.load_fails(sim.of_state(WorkerState.CHECKING)[0], Failure(code, "it is truncated"))
    sim.run_until_idle()
    assert list(sim.state.failed_checks.recent(sim.now)) == ["broken"]
    assert [refused.code for refused in sim.refusals.values()] == [Code.MODEL_UNUSABLE]
    sim.submit("broken")
    sim.run_until_idle()
    assert sim.state.failed_checks.recent(sim.now) == {}
