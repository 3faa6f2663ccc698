"""Unloads: what they end, who is told, and that the model does not come back by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.staff import Leave
from supervisor.board import Target
from supervisor.lifecycle import State
from tests.supervisor.world import World, loaded, spec

LOADER = RequestKey("g1", 700, 0)


def until(world: World, state: State) -> str:
    """Let the workers go on until one is in this state; return it."""
    while not (found := world.of_state(state)):
        assert world.advance()
    return found[0]


def without_a_worker(model: str) -> World:
    """Nobody is there yet who could check it."""
    world = World()
    world.load(model, 700)
    assert world.of_state(State.SPAWNED)
    return world


def checking(model: str) -> World:
    world = World()
    until(world, State.SPARE)
    world.load(model, 700)
    assert world.of_state(State.CHECKING)
    return world


def waiting_for_a_place(model: str) -> World:
    """It is checked, and waits for the end of what is in its place."""
    world = loaded("other")
    world.ask("other")
    world.load(model, 700)
    until(world, State.CHECKED)
    return world


def coming_down(model: str) -> World:
    """It is being downloaded."""
    world = World()
    world.scheduler.load_asked("g1", 700, Target(model, "llm", None), world.now)
    world.settle()
    assert world.fetches == [model]
    return world


def starting(model: str) -> World:
    world = checking(model)
    until(world, State.LOADING)
    return world


def leaving_for_other_options(model: str) -> World:
    """Its former worker is on its way out."""
    world = loaded(model)
    world.load(model, 699, options={"ctx_size": 8192})
    until(world, State.STOPPING)
    world.load(model, 700)
    return world


WAYS = [without_a_worker, checking, waiting_for_a_place, coming_down, starting, leaving_for_other_options]


@pytest.mark.parametrize("way", WAYS)
def test_an_unload_ends_a_load_that_is_under_way(way: Callable[[str], World]) -> None:
    world = way("a")
    key = world.ask("a")
    assert world.unload("a")
    assert {world.refusals[LOADER].code, world.refusals[key].code} == {Code.UNLOADED}
    assert world.refusals[LOADER].model == "a"
    world.calm()
    assert world.reports["g1", 901] == ["a"]
    world.scheduler.fetched("a", spec("a"), None, world.now)
    world.settle()
    world.calm()
    gone = world.scheduler.places.get("a")
    assert gone is None or gone.seat is None
    assert not world.unload("a", 902), "nothing is left of it"


@pytest.mark.parametrize("way", WAYS)
def test_it_is_loaded_again_for_who_asks_after_that(way: Callable[[str], World]) -> None:
    world = way("a")
    assert world.unload("a")
    key = world.ask("a")
    for running in [running for worker in world.workers.values() for running in worker.running]:
        world.finish(running)
    world.calm()
    assert key in world.order


def test_what_is_only_being_checked_is_unloaded_at_once() -> None:
    world = checking("a")
    worker = world.of_state(State.CHECKING)[0]
    assert world.unload("a")
    assert world.reports["g1", 901] == ["a"], "there is no engine to wait for"
    assert any(isinstance(told, Leave) for told in world.workers[worker].told), "a check may take long"
    world.scheduler.checked(worker, 0, 0)
    world.load_fails(worker, started=False)
    world.calm()
    assert world.scheduler.settled


def test_a_worker_that_has_checked_a_model_is_a_spare_again() -> None:
    world = waiting_for_a_place("a")
    worker = world.of_state(State.CHECKED)[0]
    assert world.unload("a")
    assert worker in world.of_state(State.SPARE)


def test_options_of_before_do_not_survive_the_unload() -> None:
    world = World()
    until(world, State.SPARE)
    world.load("a", 700, options={"ctx_size": 8192})
    assert world.of_state(State.CHECKING)
    assert world.unload("a")
    world.ask("a")
    world.calm()
    assert world.scheduler.places["a"].spec == spec("a")


def test_an_unload_ends_a_load_with_other_options_before_it_has_begun() -> None:
    world = loaded("a")
    stream = world.ask("a")
    world.load("a", 700, options={"ctx_size": 8192})
    assert world.unload("a")
    assert world.refusals[LOADER].code is Code.UNLOADED
    world.finish(stream)
    world.calm()
    assert world.reports["g1", 901] == ["a"]
    assert "a" not in world.scheduler.places


def test_a_check_that_nobody_waits_for_any_more_leaves_a_spare() -> None:
    world = World()
    until(world, State.SPARE)
    key = world.ask("a")
    until(world, State.CHECKING)
    world.cancel(key)
    world.calm()
    assert world.of_state(State.SPARE)
    assert not world.of_state(State.CHECKED)
    assert world.scheduler.settled


def for_nobody(**limits: object) -> World:
    """Its engine works, and does not stop although nobody wants that any more."""
    world = loaded("a", **limits)
    world.cannot_stop(world.ask("a"))
    return world


def left(world: World, model: str = "a") -> bool:
    """Whether the model's worker was told to leave."""
    return any(isinstance(told, Leave) for told in world.workers[world.serving(model)].told)


def test_an_unload_does_not_wait_for_what_nobody_wants() -> None:
    world = for_nobody()
    assert world.unload("a")
    assert left(world)
    assert [note.event for note in world.notes][-1] == "engine ended, what it works on nobody wants"
    world.calm()
    assert world.reports["g1", 901] == ["a"]
    assert world.scheduler.granted == 0
    assert not any("lost" in note.event for note in world.notes)


def test_its_engine_may_die_before_it_hears_of_that() -> None:
    world = for_nobody()
    assert world.unload("a")
    world.engine_dies(world.serving("a"))
    assert world.scheduler.granted == 0
    world.calm()
    assert world.reports["g1", 901] == ["a"]


def test_nor_does_a_model_that_needs_the_place_nor_one_with_other_options() -> None:
    world = for_nobody()
    key = world.ask("b")
    assert not left(world), "the other one is still to be checked"
    world.calm()
    assert world.order[-1] == key
    world = for_nobody()
    world.load("a", 700, options={"ctx_size": 8192})
    world.calm()
    assert ("g1", 700) in world.reports


def test_it_waits_for_what_somebody_wants_beside_it() -> None:
    world = loaded("a")
    wanted, unwanted = world.ask("a"), world.ask("a")
    world.cannot_stop(unwanted)
    assert world.unload("a")
    assert not left(world)
    world.finish(wanted)
    assert left(world)


def test_what_does_not_stop_changes_nothing_while_the_model_stays() -> None:
    world = for_nobody()
    assert world.scheduler.settled
    beside, behind = world.ask("a"), world.ask("a")
    assert world.order[-1] == beside, "its slot is in use, whatever for"
    world.finish(world.order[0])
    assert world.order[-1] == behind
    assert world.unload("a")
    assert not left(world)


def test_what_runs_under_a_lease_that_nobody_wants() -> None:
    world = World(1, 8)
    first = world.ask("a")
    world.calm()
    world.finish(first)
    world.finish(world.ask("a"))
    worker = world.serving("a")
    key = world.use_lease(worker, "g1")
    assert key is not None, "the supervisor has not heard of it"
    world.cannot_stop(key)
    assert world.unload("a")
    assert not left(world), "its slots are lent"
    assert world.answer_recall()
    assert left(world)


def draining_for_an_unload() -> World:
    world = loaded("a")
    world.ask("a")
    assert world.unload("a")
    return world


def draining_for_another() -> World:
    world = loaded("a")
    world.ask("a")
    world.ask("b")
    return world


def draining_for_the_end() -> World:
    world = loaded("a")
    world.ask("a")
    world.scheduler.close()
    world.settle()
    return world


@pytest.mark.parametrize("gone", [World.engine_dies, World.worker_dies])
@pytest.mark.parametrize(
    ("way", "why"),
    [
        (draining_for_an_unload, "unload was asked for"),
        (draining_for_another, "it makes room"),
        (draining_for_the_end, "the server stops"),
    ],
)
def test_an_engine_that_is_lost_while_it_is_to_leave_is_not_said_to_come_back(
    way: Callable[[], World], why: str, gone: Callable[[World, str], object]
) -> None:
    world = way()
    gone(world, world.serving("a"))
    told = [note for note in world.notes if note.event.startswith("engine lost")]
    assert [(note.event, note.fields["why"]) for note in told] == [("engine lost, it was to leave", why)]


def test_an_engine_that_is_lost_while_it_serves_is_said_to_come_back_and_does() -> None:
    world = loaded("a")
    world.engine_dies(world.serving("a"))
    assert [note.event for note in world.notes][-1] == "engine lost, it is started again"
    world.pass_time(60.0)
    world.calm()
    assert world.of_state(State.READY)


def test_a_worker_that_is_lost_while_it_checks_for_nobody_is_not_said_to_come_back() -> None:
    world = World()
    until(world, State.SPARE)
    key = world.ask("a")
    world.cancel(key)
    world.worker_dies(world.of_state(State.CHECKING)[0])
    assert [note.event for note in world.notes][-1] == "engine lost, nobody wants it"
