"""A model that is loaded with other options: who hears what, and what it has in the end."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from supervisor.lifecycle import State
from tests.supervisor.stage import spec
from tests.supervisor.world import World, loaded

B, C = {"ctx_size": 8192}, {"ctx_size": 16384}
"""Other options than a model has that was loaded without any."""


def until(world: World, *states: State) -> str:
    """Let the workers go on until one is in one of these states; return it."""
    for _ in range(20):
        if found := world.of_state(*states):
            return found[0]
        assert world.advance()
    raise AssertionError(states)


def reloading(started: bool = True, **options: object) -> tuple[World, str]:
    """A world whose model is to be loaded with other options, up to where that fails; and its new worker."""
    world = loaded("a", **options)
    world.load("a", 701, options=B)
    return world, until(world, State.LOADING if started else State.CHECKING)


def refused(world: World, number: int) -> bool:
    return RequestKey("g1", number, 0) in world.refusals


@pytest.mark.parametrize("started", [True, False])
def test_a_model_that_cannot_be_loaded_with_other_options_keeps_those_that_it_has(started: bool) -> None:
    world, worker = reloading(started)
    key = world.ask("a")
    world.load_fails(worker, started=started)
    assert world.refusals[RequestKey("g1", 701, 0)].code is Code.LOAD_FAILED
    assert key in world.live
    world.calm()
    assert world.scheduler.places["a"].spec == spec("a")
    assert world.order == [key]
    assert not world.scheduler.places["a"].record.failure


def test_only_once_is_it_tried_as_it_was() -> None:
    world, worker = reloading()
    world.load_fails(worker)
    worker = until(world, State.LOADING)
    key = world.ask("a")
    world.load_fails(worker)
    assert world.refusals[key].code is Code.LOAD_FAILED


def test_only_who_asked_for_what_failed_is_refused() -> None:
    world, worker = reloading()
    world.load("a", 702)
    world.load("a", 703, plain=True)
    world.load("a", 704, options=B)
    world.load_fails(worker)
    world.calm()
    assert [refused(world, number) for number in (701, 702, 703, 704)] == [True, False, False, True]
    assert {("g1", 702), ("g1", 703)} <= set(world.reports)


def test_options_that_wait_are_tried_when_those_before_them_have_failed() -> None:
    world, worker = reloading()
    world.load("a", 702, options=C)
    world.load_fails(worker)
    assert [refused(world, number) for number in (701, 702)] == [True, False]
    worker = until(world, State.LOADING)
    assert world.scheduler.places["a"].spec == spec("a", options=C)
    world.load_fails(worker)
    assert refused(world, 702)
    world.calm()
    assert world.scheduler.places["a"].spec == spec("a")
    assert world.of_state(State.READY)


def test_who_has_got_what_was_asked_for_is_told_so_whatever_comes_then() -> None:
    world, worker = reloading()
    world.load("a", 702, options=C)
    world.ready(worker)
    assert ("g1", 701) in world.reports
    world.load_fails(until(world, State.LOADING))
    world.calm()
    assert refused(world, 702)
    assert world.scheduler.places["a"].spec == spec("a", options=B)


def test_a_pin_that_came_with_refused_options_is_none() -> None:
    world = loaded("a")
    world.load("a", 701, options=B, pin=True)
    worker = until(world, State.LOADING)
    assert world.scheduler.places["a"].pinned
    world.load_fails(worker)
    world.calm()
    assert not world.scheduler.places["a"].pinned


@pytest.mark.parametrize("state", [State.LOADING, State.CHECKING, State.CHECKED, None])
def test_what_is_unloaded_while_it_is_loaded_again_does_not_come_back(state: State | None) -> None:
    world, worker = reloading(started=state is not State.CHECKING)
    if state is None:
        world.load_fails(worker)
        assert world.scheduler.places["a"].seat is None
    elif state is State.CHECKED:
        world = loaded("a", "b", places=2)
        world.load("a", 701, options=B)
        world.scheduler.checked(until(world, State.CHECKING), 0, 0)
    assert world.unload("a")
    world.calm()
    assert ("g1", 901) in world.reports
    assert "a" not in {seat.place.name for seat in world.scheduler.seats.values() if seat.place}
    assert not world.scheduler.places.get("a") or not world.scheduler.places["a"].wanted


def test_what_stood_back_is_not_loaded_as_it_once_was() -> None:
    world = loaded("a")
    world.load("a", 701, options=B)
    world.scheduler.forget("g1", 701)
    key = world.ask("b")
    world.calm()
    assert key in world.order, "nobody waits for the other one any more"
    world.finish(key)
    world.pass_time(3600)
    key = world.ask("a")
    world.load_fails(until(world, State.LOADING))
    assert world.refusals[key].code is Code.LOAD_FAILED


def test_an_engine_is_not_ended_again_for_options_that_were_just_refused() -> None:
    world, worker = reloading()
    world.load_fails(worker)
    world.load("a", 702, options=B, pin=True)
    assert refused(world, 702), "also while it is on its way back"
    world.calm()
    serving = world.serving("a")
    world.pass_time(20)
    world.load("a", 703, options=B)
    first, again = (world.refusals[RequestKey("g1", number, 0)] for number in (701, 703))
    assert (again.code, again.message) == (first.code, first.message)
    assert again.retry_after == pytest.approx(40, abs=1)
    assert not world.scheduler.places["a"].pinned
    world.calm()
    assert world.serving("a") == serving
    world.pass_time(41)
    world.load("a", 704, options=B)
    assert not refused(world, 704)
    until(world, State.LOADING)


@pytest.mark.parametrize("options", [B, C])
def test_other_options_and_those_of_a_model_that_was_unloaded_are_tried(options: dict[str, int]) -> None:
    world, worker = reloading()
    world.load_fails(worker)
    world.calm()
    if options is B:
        assert world.unload("a")
        world.calm()
    world.load("a", 702, options=options)
    world.calm()
    assert ("g1", 702) in world.reports
