"""How many requests of a model run and wait under its policy, and what its pin prevents."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.policy import FixedPolicies, GroupPolicy, ModelPolicy
from tests.supervisor.recovery.recovery_simulation import recoverable
from tests.supervisor.scheduler.simulation import loaded


def policies(**more: object) -> FixedPolicies:
    return FixedPolicies({"a": ModelPolicy(**more)})


@pytest.mark.parametrize(("concurrency", "at_once"), [(0, 4), (1, 1), (3, 3), (9, 4)])
def test_the_policy_limits_the_requests_that_run(concurrency: int, at_once: int) -> None:
    sim = loaded("a", slots=4, policies=policies(concurrency=concurrency))
    keys = [sim.submit("a") for _ in range(6)]
    assert sim.order == keys[:at_once]
    sim.finish(keys[0])
    assert sim.order == keys[: at_once + 1]


def test_a_request_of_many_parts_counts_as_many_as_may_run() -> None:
    sim = loaded("a", slots=4, policies=policies(concurrency=2))
    first, second = sim.submit("a", weight=4), sim.submit("a")
    assert sim.order == [first]
    sim.finish(first)
    assert sim.order == [first, second]


def test_a_suspect_request_runs_alone_also_when_more_may_run_meanwhile() -> None:
    sim = recoverable("a", slots=4, policies=policies(concurrency=1))
    suspect = sim.submit("a", suspect=True)
    other = sim.submit("a")
    sim.reload(policies(concurrency=4))
    assert sim.order == [suspect]
    sim.finish(suspect)
    assert sim.order == [suspect, other]


def test_fewer_slots_end_no_request_and_more_are_used_at_once() -> None:
    sim = recoverable("a", slots=4)
    keys = [sim.submit("a") for _ in range(4)]
    sim.reload(policies(concurrency=2))
    waiting = sim.submit("a")
    assert len(sim.order) == 4
    for key in keys[:2]:
        sim.finish(key)
    assert waiting not in sim.order
    sim.reload(policies())
    assert waiting in sim.order


def test_a_full_queue_refuses_with_a_time_to_retry() -> None:
    sim = loaded("a", "b", models=2, policies=policies(queue=1), queue_requests=3)
    for name, waiting in (("a", 1), ("b", 3)):
        keys = [sim.submit(name) for _ in range(2 + waiting)]
        refused = sim.submit(name)
        assert not set(keys) & sim.refusals.keys()
        failure = sim.refusals[refused]
        assert (failure.code, failure.model) == (Code.OVERLOADED, name)
        assert failure.retry_after >= 1


def test_a_model_may_have_a_longer_queue_than_others() -> None:
    sim = loaded("a", policies=policies(queue=5), queue_requests=1)
    keys = [sim.submit("a") for _ in range(7)]
    assert not set(keys) & sim.refusals.keys()
    assert sim.submit("a") in sim.refusals


def test_a_request_that_only_pinned_models_stop_is_refused_at_once_and_for_good() -> None:
    sim = loaded("a", "b", models=2, policies=FixedPolicies({name: ModelPolicy(pin=True) for name in "ab"}))
    failure = sim.refusals[sim.submit("c")]
    assert failure.code is Code.ALL_PINNED
    assert failure.final
    assert failure.detail == "pinned: a, b", "names are for administrators"
    assert "unpin" in failure.message
    assert not sim.scheduler.view.queued


def test_a_pin_call_protects_until_the_model_is_unloaded() -> None:
    sim = loaded("a")
    assert sim.pin("a")
    assert sim.refusals[sim.submit("b")].code is Code.ALL_PINNED
    assert sim.unload("a"), "an administrator may unload it anyway"
    sim.run_until_idle()
    key = sim.submit("b")
    sim.run_until_idle()
    assert sim.order == [key]
    assert not sim.pin("a"), "it is not loaded"


@pytest.mark.parametrize("state", [ModelState.CHECKING, ModelState.LOADING])
def test_a_pin_survives_the_supervisor_as_soon_as_the_engine_was_started(state: ModelState) -> None:
    sim = recoverable("a")
    sim.submit("b")
    while sim.state.models["b"].state is not state:
        assert sim.advance()
    assert sim.pin("b")
    sim.recover()
    sim.run_until_idle()
    assert sim.state.models["b"].pinned is (state is ModelState.LOADING)


def test_an_unpinned_model_gives_way_to_the_next_request() -> None:
    sim = loaded("a", policies=policies(pin=True))
    assert sim.pin("a", pinned=False)
    key = sim.submit("b")
    sim.run_until_idle()
    assert sim.order == [key]
    sim.finish(key)
    sim.submit("a")
    sim.run_until_idle()
    assert sim.state.models["a"].pinned, "the next load is by its policy again"


def test_a_pin_calls_an_eviction_off() -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    other = sim.submit("b")
    sim.pin("a")
    assert sim.refusals[other].code is Code.ALL_PINNED
    again = sim.submit("a")
    assert sim.order == [stream, again]


def group(members: str, **more: object) -> FixedPolicies:
    in_group = ModelPolicy(groups=frozenset({"g"}))
    return FixedPolicies(dict.fromkeys(members, in_group), {"g": GroupPolicy(**more)})


def test_models_of_a_swap_group_take_turns() -> None:
    sim = loaded("a", models=4, policies=group("ab", swap=True))
    stream = sim.submit("a")
    other, beside = sim.submit("b"), sim.submit("c")
    sim.run_until_idle()
    assert sim.order == [stream, beside], "a model outside the group does not wait"
    sim.finish(stream)
    sim.run_until_idle()
    assert sim.order == [stream, beside, other]
    assert "a" not in sim.state.models


@pytest.mark.parametrize(("first", "second"), ["ac", "ca"])
def test_an_exclusive_group_and_the_models_outside_exclude_each_other(first: str, second: str) -> None:
    sim = loaded(first, models=4, policies=group("ab", exclusive=True))
    key = sim.submit(second)
    sim.run_until_idle()
    assert sim.order == [key]
    assert first not in sim.state.models


def test_models_of_an_exclusive_group_are_loaded_together() -> None:
    sim = loaded("a", "b", models=4, policies=group("ab", exclusive=True))
    assert {name for name, model in sim.state.models.items() if model.loaded} == {"a", "b"}


def test_a_pinned_model_outside_an_exclusive_group_is_named() -> None:
    sim = loaded("c", models=4, policies=group("ab", exclusive=True))
    sim.pin("c")
    failure = sim.refusals[sim.submit("a")]
    assert failure.code is Code.ALL_PINNED
    assert "c" in failure.message.rpartition(":")[2]


def test_models_leave_when_the_groups_have_changed() -> None:
    sim = recoverable("a", "b", "c", models=4)
    stream = sim.submit("a")
    sim.reload(group("ab", swap=True))
    sim.run_until_idle()
    assert [name for name, model in sim.state.models.items() if model.loaded] == ["a", "c"], "the idle one leaves"
    (note,) = (note for note in sim.notes if note.event == "model drains")
    assert note.fields["reason"] == "the settings no longer allow it beside others"
    sim.reload(group("ab", exclusive=True))
    again = sim.submit("a")
    sim.run_until_idle()
    assert [name for name, model in sim.state.models.items() if model.loaded] == ["a"]
    assert sim.order == [stream, again]


def test_a_busy_model_that_must_leave_ends_its_requests_first() -> None:
    sim = recoverable("a", "b", models=4)
    streams = [sim.submit("a"), sim.submit("b")]
    sim.reload(group("ab", swap=True))
    sim.run_until_idle()
    assert all(sim.state.models[name].loaded for name in "ab")
    for stream in streams:
        sim.finish(stream)
    sim.run_until_idle()
    assert sum(model.loaded for model in sim.state.models.values()) == 1
