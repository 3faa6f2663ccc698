"""The table of a model's lifecycle, and that only one file changes a model's state."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import supervisor
from protocol.state_table import IllegalTransitionError, next_state
from protocol.worker_states import WorkerState
from supervisor.scheduler import model_changes
from supervisor.scheduler.model_states import TRANSITIONS, WORKER_STATES, ModelEvent, ModelState
from supervisor.scheduler.recovery import taken_over_models
from tests.supervisor.scheduler.simulation import Simulation, loaded

OWNED = {
    "keep_loaded",
    "spec",
    "pending_spec",
    "rollback_spec",
    "overrides",
    "rollback_overrides",
    "refused_reload",
    "worker",
}
"""Attributes of a model that only its owners write, beside the class that has them."""
OWNERS = {Path(model_changes.__file__), Path(taken_over_models.__file__)}
ASKED = {"known_models.py": {"spec", "rollback_spec", "refused_reload"}}
"""File → the attributes of them that it also writes, because a call asks for it. It changes no state."""


def test_every_state_and_event_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(ModelState)
    assert {event for steps in TRANSITIONS.values() for event in steps} == set(ModelEvent)
    reached = {state for steps in TRANSITIONS.values() for state in steps.values()}
    assert reached == set(ModelState)


def test_every_state_with_a_worker_can_lose_it() -> None:
    for state in ModelState:
        assert (ModelEvent.WORKER_GONE in TRANSITIONS[state]) == (state in WORKER_STATES)


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (ModelState.ABSENT, ModelEvent.READY),
        (ModelState.READY, ModelEvent.LOAD),
        (ModelState.UNLOADING, ModelEvent.RESUME),
        (ModelState.QUEUED, ModelEvent.WORKER_GONE),
    ],
)
def test_a_step_that_the_table_does_not_have_is_an_error(state: ModelState, event: ModelEvent) -> None:
    with pytest.raises(IllegalTransitionError):
        next_state(TRANSITIONS, state, event)


def assigned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield (object, attribute) for each attribute that a file assigns to."""
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Attribute):
                    yield ast.unparse(each.value), each.attr


def test_only_its_owners_change_a_models_state_and_specs() -> None:
    wrong = []
    for path in Path(supervisor.__file__).parent.rglob("*.py"):
        if path in OWNERS:
            continue
        tree = ast.parse(path.read_text())
        wrong += [
            f"{path.name} assigns {of}.{name}"
            for of, name in assigned(tree)
            if name in OWNED - ASKED.get(path.name, set()) and of in ("model", "scheduled")
        ]
        wrong += [
            f"{path.name} calls {ast.unparse(node.func)}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("model.transition", "scheduled.transition")
        ]
    assert not wrong


def state_of(sim: Simulation, model: str = "a") -> ModelState:
    return sim.state.models[model].state


def test_a_life_from_absent_to_ready_and_back() -> None:
    sim = Simulation()
    sim.load("a")
    seen = [state_of(sim)]
    while sim.advance():
        seen.append(state_of(sim))
    assert list(dict.fromkeys(seen)) == [
        ModelState.QUEUED,
        ModelState.CHECKING,
        ModelState.LOADING,
        ModelState.READY,
    ]
    running = sim.submit("a")
    sim.unload("a")
    assert state_of(sim) is ModelState.DRAINING
    sim.finish(running)
    assert state_of(sim) is ModelState.UNLOADING
    sim.run_until_idle()
    assert "a" not in sim.state.models


def test_a_model_that_waits_for_an_eviction_is_checked() -> None:
    sim = loaded("a")
    sim.submit("a")
    sim.submit("b")
    sim.run_until_idle()
    assert (state_of(sim, "a"), state_of(sim, "b")) == (ModelState.DRAINING, ModelState.CHECKED)


def test_other_options_are_a_reload() -> None:
    sim = loaded("a")
    sim.load("a", 700, options={"ctx_size": 8192})
    assert state_of(sim) is ModelState.RELOADING
    sim.worker_dies(sim.of_state(WorkerState.LEAVING)[0])
    assert state_of(sim) in (ModelState.QUEUED, ModelState.CHECKING)


def test_an_unload_ends_a_reload() -> None:
    sim = loaded("a")
    sim.load("a", 700, options={"ctx_size": 8192})
    assert sim.unload("a")
    assert state_of(sim) is ModelState.UNLOADING


def test_a_failed_load_backs_off_and_then_is_absent() -> None:
    sim = Simulation()
    sim.submit("a")
    while not sim.of_state(WorkerState.LOADING):
        assert sim.advance()
    sim.load_fails(sim.of_state(WorkerState.LOADING)[0])
    assert state_of(sim) is ModelState.BACKING_OFF
    sim.pass_time(1.0)
    assert state_of(sim) is ModelState.ABSENT


def test_a_model_that_was_ready_is_tried_again_after_its_pause_without_a_request() -> None:
    sim = loaded("a")
    sim.engine_dies(sim.serving("a"))
    sim.load_fails(sim.of_state(WorkerState.LOADING)[0])
    assert state_of(sim) is ModelState.BACKING_OFF
    sim.run_until_idle()
    sim.pass_time(1.0)
    sim.run_until_idle()
    assert state_of(sim) is ModelState.READY


def test_a_deleted_model_does_not_come_back() -> None:
    sim = loaded("a")
    sim.load("a", 700, options={"ctx_size": 8192})
    sim.scheduler.model_deleted("a")
    sim.settle()
    sim.run_until_idle()
    assert "a" not in sim.state.models
