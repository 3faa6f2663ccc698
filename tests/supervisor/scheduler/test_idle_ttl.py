"""Models that are unloaded when they are idle: what counts as use, who may change the time, and how long a change lasts."""

from __future__ import annotations

import pytest

from protocol.times import NEVER_UNLOADED
from protocol.worker_states import WorkerState
from supervisor.scheduler.idle_ttl import expires_at, ttl_of
from supervisor.scheduler.policy import FixedPolicies, ModelPolicy
from tests.supervisor.recovery.recovery_simulation import recoverable
from tests.supervisor.scheduler.simulation import Simulation, loaded


def with_ttl(seconds: float, **more: object) -> FixedPolicies:
    return FixedPolicies({"a": ModelPolicy(ttl=seconds, **more)})


def is_loaded(sim: Simulation, name: str = "a") -> bool:
    sim.run_until_idle()
    model = sim.state.models.get(name)
    return model is not None and model.loaded


def test_a_model_is_unloaded_when_it_was_idle_for_its_ttl() -> None:
    sim = loaded("a", policies=with_ttl(60))
    sim.pass_time(59.9)
    assert is_loaded(sim)
    sim.pass_time(0.1)
    assert not is_loaded(sim)
    assert sim.state.counters["expirations"] == 1
    assert sim.state.metrics.idle_unloads.values == {(): 1}
    assert [note.fields["model"] for note in sim.notes if note.event == "model unloaded, it was idle"] == ["a"]


def test_a_model_without_a_ttl_stays() -> None:
    sim = loaded("a")
    sim.pass_time(1e9)
    assert is_loaded(sim)
    assert expires_at(sim.state.models["a"]) is None


def test_time_counts_from_the_end_of_the_last_request() -> None:
    sim = loaded("a", policies=with_ttl(60))
    key = sim.submit("a")
    sim.pass_time(500)
    assert is_loaded(sim), "it is busy"
    assert expires_at(sim.state.models["a"]) is None
    sim.finish(key)
    assert expires_at(sim.state.models["a"]) == 560
    sim.pass_time(59)
    assert is_loaded(sim)
    sim.pass_time(1)
    assert not is_loaded(sim)


def test_a_load_of_a_loaded_model_is_a_use() -> None:
    sim = loaded("a", policies=with_ttl(60))
    sim.pass_time(59)
    sim.load("a", 700)
    sim.pass_time(59)
    assert is_loaded(sim)


def test_a_request_loads_it_again() -> None:
    sim = loaded("a", policies=with_ttl(60))
    sim.pass_time(60)
    key = sim.submit("a")
    sim.run_until_idle()
    assert sim.order == [key]


def test_a_pinned_model_is_not_unloaded_by_idle_time_until_it_is_unpinned() -> None:
    sim = loaded("a", policies=with_ttl(60, pin=True))
    sim.pass_time(1000)
    assert is_loaded(sim)
    sim.pin("a", False)
    assert not is_loaded(sim)


@pytest.mark.parametrize(
    ("policy", "asked", "after", "stays"), [(60, NEVER_UNLOADED, 1e6, True), (NEVER_UNLOADED, 30, 30, False)]
)
def test_a_load_says_how_long(policy: float, asked: float, after: float, stays: bool) -> None:
    sim = loaded("a", policies=with_ttl(policy))
    sim.load("a", 700, ttl=asked)
    sim.load("a", 701)
    assert ttl_of(sim.state.models["a"]) == asked, "a load that says nothing of it changes nothing"
    sim.pass_time(after)
    assert is_loaded(sim) is stays


def test_what_a_load_asked_for_ends_with_an_unload() -> None:
    sim = loaded("a", policies=with_ttl(60))
    sim.load("a", 700, ttl=5.0, pin=True)
    assert sim.unload("a")
    sim.run_until_idle()
    sim.submit("a")
    sim.run_until_idle()
    model = sim.state.models["a"]
    assert (ttl_of(model), model.pinned) == (60, False)


def test_it_survives_a_crash_of_the_engine() -> None:
    sim = loaded("a")
    sim.load("a", 700, ttl=NEVER_UNLOADED, pin=True)
    sim.engine_dies(sim.serving("a"))
    sim.pass_time(1)
    assert is_loaded(sim)
    assert sim.state.models["a"].pinned
    sim.worker_dies(sim.serving("a"))
    sim.pass_time(1)
    assert is_loaded(sim)
    assert sim.state.models["a"].pinned


def test_a_request_may_say_how_long_its_model_stays() -> None:
    sim = loaded("a")
    sim.finish(sim.submit("a", ttl=30.0))
    sim.finish(sim.submit("a"))
    sim.pass_time(29)
    assert is_loaded(sim)
    sim.pass_time(1)
    assert not is_loaded(sim)


def test_zero_unloads_as_soon_as_the_model_is_idle() -> None:
    sim = loaded("a")
    first, other = sim.submit("a", ttl=0.0), sim.submit("a")
    waiting = sim.submit("a")
    sim.finish(first)
    sim.finish(other)
    assert is_loaded(sim), "a request ran that had waited"
    assert sim.order == [first, other, waiting]
    sim.finish(waiting)
    assert sim.of_state(WorkerState.LEAVING)
    assert not is_loaded(sim)


def test_a_refused_request_changes_nothing() -> None:
    sim = loaded("a", queue_requests=1)
    keys = [sim.submit("a") for _ in range(3)]
    refused = sim.submit("a", ttl=1.0)
    assert refused in sim.refusals
    for key in keys:
        sim.finish(key)
    sim.pass_time(10)
    assert is_loaded(sim)


def test_a_changed_policy_counts_at_once_but_not_before_a_call() -> None:
    sim = recoverable("a", "b", models=2)
    sim.load("b", 700, ttl=NEVER_UNLOADED)
    sim.pass_time(100)
    sim.reload(FixedPolicies({name: ModelPolicy(ttl=50) for name in "ab"}))
    assert not is_loaded(sim)
    assert is_loaded(sim, "b")
