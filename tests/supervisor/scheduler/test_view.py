"""What others see of the scheduler: values of one moment, which later events do not change."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from protocol.messages.health import QueueShare
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view_values import ModelView
from tests.supervisor.scheduler.simulation import Simulation, loaded


def view_of(sim: Simulation, name: str) -> ModelView:
    found = sim.scheduler.view.model(name)
    assert found is not None
    return found


def test_a_view_is_of_its_moment() -> None:
    sim = loaded("a")
    key = sim.submit("a")
    before = view_of(sim, "a")
    assert (before.state, before.serves, before.counts_as_loaded) == (ModelState.READY, True, True)
    assert (before.running, before.busy, before.queued, before.slots) == (1, 1, 0, sim.slots)
    sim.finish(key)
    assert before.running == 1
    assert view_of(sim, "a").running == 0
    with pytest.raises(AttributeError):
        before.running = 2  # type: ignore[misc]


def test_a_model_that_nothing_concerns_is_unknown() -> None:
    sim = loaded("a")
    assert sim.scheduler.view.model("b") is None
    assert sim.scheduler.view.worker("w99") is None
    assert [model.name for model in sim.scheduler.view.models()] == ["a"]


def test_a_model_serves_from_the_moment_when_its_engine_is_ready() -> None:
    sim = Simulation()
    sim.submit("a")
    view = sim.scheduler.view
    assert view.serving("a") is None
    sim.run_until_idle()
    target = view.serving("a")
    assert target is not None
    assert target == view_of(sim, "a").target
    sim.engine_dies(view_of(sim, "a").worker)
    assert view.serving("a") is None
    assert view_of(sim, "a").facts is not None, "of the engine that was lost"


def test_the_latest_model_is_the_last_used_of_those_that_fit() -> None:
    sim = loaded("a", "b", models=2)
    for name in ("a", "b"):
        key = sim.submit(name)
        sim.pass_time(1.0)
        sim.finish(key)
    view = sim.scheduler.view
    latest = view.latest(lambda _model: True)
    other = view.latest(lambda model: model.name != "b")
    assert (latest and latest.name, other and other.name) == ("b", "a")
    assert view.latest(lambda _model: False) is None


def test_a_worker_says_which_model_it_has_and_whether_it_is_to_leave() -> None:
    sim = loaded("a")
    name = view_of(sim, "a").worker
    worker = sim.scheduler.view.worker(name)
    assert worker is not None
    assert (worker.model, worker.spec, worker.is_stopping) == ("a", view_of(sim, "a").spec, False)
    sim.unload("a")
    stopping = sim.scheduler.view.worker(name)
    assert stopping is not None
    assert stopping.is_stopping


def test_attempts_are_found_by_gateway_and_by_key() -> None:
    sim = loaded("a", "b", models=2)
    key = sim.submit("a", caller="ci", size=7)
    view = sim.scheduler.view
    assert view.attempts_of_gateway("g1") == {key}
    assert (view.requests_of_key("ci"), view.workers_of_key("ci")) == (1, [view_of(sim, "a").worker])


def test_a_queue_is_shown_by_key_with_the_position_of_its_first_request() -> None:
    sim = loaded("a")
    running = [sim.submit("a", caller="first") for _ in range(sim.slots)]
    for caller in ("one", "one", "two"):
        sim.submit("a", caller=caller)
    shares = {share.key: share for share in sim.scheduler.view.queue_shares("a")}
    assert {key: share.requests for key, share in shares.items()} == {"one": 2, "two": 1}
    assert min(share.position for share in shares.values()) == 1
    assert all(isinstance(share, QueueShare) and share.wait_s >= 1.0 for share in shares.values())
    assert sim.scheduler.view.queued == 3
    assert sim.scheduler.view.running == len(running)


def test_a_model_that_could_not_be_loaded_is_reported_with_the_reason() -> None:
    sim = Simulation()
    sim.hello("w1")
    sim.submit("a")
    worker = view_of(sim, "a").worker
    sim.checked(worker)
    sim.load_fails(worker, Failure(Code.LOAD_FAILED, "no memory"))
    (failed,) = sim.scheduler.view.failed_models(sim.now)
    assert (failed.model, failed.failure.message, failed.failures) == ("a", "no memory", 1)
