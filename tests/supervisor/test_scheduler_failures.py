"""Histories of loads that fail, and of engines and workers that die: who is told, who waits, what is tried again."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from supervisor.lifecycle import State
from supervisor.restarts import FORGIVEN_AFTER, Policy
from tests.supervisor.world import World, loaded


def test_a_failed_check_evicts_nobody() -> None:
    world = loaded("a")
    key = world.ask("b")
    world.load_fails(world.of_state(State.CHECKING)[0], started=False)
    assert world.refusals[key].code is Code.LOAD_FAILED
    assert world.scheduler.places["a"].seat is not None
    assert world.scheduler.places["a"].seat.state is State.READY


def test_a_failed_start_evicts_one_then_backs_off_and_displaces_nobody() -> None:
    world = loaded("a", "c", places=2)
    first = world.ask("b")
    while not world.of_state(State.LOADING):
        assert world.advance()
    world.load_fails(world.of_state(State.LOADING)[0])
    assert world.refusals[first].retry_after == 1.0
    assert world.scheduler.places["c"].seat is not None
    at_once = world.ask("b")
    assert world.refusals[at_once].code is Code.BACKING_OFF
    world.load("a", 600)
    world.calm()
    world.pass_time(5.0)
    later = world.ask("b")
    world.calm()
    assert world.refusals[later].code is Code.BACKING_OFF
    assert world.refusals[later].retry_after == pytest.approx(FORGIVEN_AFTER * Policy().most - 5.0)
    assert {place.name for place in world.scheduler.places.values() if place.seat} == {"a", "c"}
    world.load("b", 601)
    world.calm()
    assert world.scheduler.places["b"].seat is not None


def test_pauses_double() -> None:
    world = World()
    pauses = []
    for _ in range(8):
        world.ask("a")
        while not world.of_state(State.LOADING):
            assert world.advance()
        world.load_fails(world.of_state(State.LOADING)[0])
        pauses.append(world.scheduler.places["a"].record.pause(world.now))
        world.calm()
        world.pass_time(pauses[-1])
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_engine_that_dies_is_started_again_without_a_request() -> None:
    world = loaded("a")
    worker = world.serving("a")
    world.engine_dies(worker)
    assert world.of_state(State.LOADING) == [worker]
    world.calm()
    assert world.of_state(State.READY) == [worker]


def test_a_worker_that_dies_is_replaced_without_a_request() -> None:
    world = loaded("a")
    worker = world.serving("a")
    world.worker_dies(worker)
    world.calm()
    assert world.serving("a") != worker


@pytest.mark.parametrize("state", [State.CHECKING, State.LOADING])
def test_a_worker_that_dies_with_a_load_in_its_hands_is_replaced_and_nobody_is_refused(state: State) -> None:
    world = World()
    key = world.ask("a")
    for _ in range(8):
        while not world.of_state(state):
            assert world.advance()
        world.worker_dies(world.of_state(state)[0])
    world.calm()
    assert world.order == [key]
    assert not world.refusals


def test_workers_that_die_of_a_load_again_and_again_open_the_breaker() -> None:
    world = World()
    key = world.ask("a")
    while world.live:
        if not world.of_state(State.CHECKING):
            assert world.advance()
            continue
        world.worker_dies(world.of_state(State.CHECKING)[0])
    assert world.refusals[key].code is Code.BREAKER_OPEN


def test_a_worker_that_was_ended_before_its_hello_may_still_say_it() -> None:
    world = World()
    worker = world.of_state(State.SPAWNED)[0]
    world.scheduler.end(world.scheduler.seats[worker])
    world.hello(worker)
    assert world.of_state(State.STOPPING) == [worker]


def test_the_breaker_opens_after_too_many_deaths() -> None:
    world = loaded("a")
    for _ in range(20):
        world.engine_dies(world.serving("a"))
        world.calm()
    assert world.of_state(State.READY)
    world.engine_dies(world.serving("a"))
    world.calm()
    key = world.ask("a")
    assert world.refusals[key].code is Code.BREAKER_OPEN
    assert world.refusals[key].retry_after == 60.0
    world.pass_time(60.0)
    key = world.ask("a")
    world.calm()
    assert key in world.order


def test_suspects_run_alone_and_keep_their_turn() -> None:
    world = loaded("a")
    keys = [world.ask("a"), world.ask("a")]
    waiting = world.ask("a")
    world.engine_dies(world.serving("a"))
    retries = [world.retry(key) for key in keys]
    world.calm()
    assert world.order == [*keys, retries[0]]
    world.finish(retries[0])
    assert world.order == [*keys, *retries]
    world.finish(retries[1])
    assert world.order == [*keys, *retries, waiting]


def test_workers_that_never_start_are_not_waited_for() -> None:
    world = World()
    for worker in list(world.workers):
        world.worker_dies(worker)
    world.pass_time(1.0)
    key = world.ask("a")
    for _ in range(2):
        for worker in list(world.workers):
            world.worker_dies(worker)
        world.pass_time(2.0)
    assert world.refusals[key].code is Code.LOAD_FAILED
    world.pass_time(60.0)
    key = world.ask("a")
    world.calm()
    assert world.order == [key]
