"""Engines that keep nothing between requests and work on for clients that are gone: started again, not waited for."""

from __future__ import annotations

import pytest

from protocol.recipes import ModelSpec
from protocol.staff import Leave
from supervisor.lifecycle import State
from tests.supervisor import stage
from tests.supervisor import world as worlds
from tests.supervisor.world import World


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> World:
    """One model of one slot whose engine may be restarted, and that works for a client that is gone."""

    def restartable(name: str, **more: object) -> ModelSpec:
        return ModelSpec(name, "c", "sd-cpp", "cpu", "llm", "/m", restartable=True, **more)

    monkeypatch.setattr(stage, "spec", restartable)
    monkeypatch.setattr(worlds, "spec", restartable)
    world = World(1, 1)
    world.load("a")
    world.calm()
    assert world.scheduler.settled
    return world


def left(world: World) -> list[str]:
    return [name for name, worker in world.workers.items() if any(isinstance(told, Leave) for told in worker.told)]


def test_it_is_started_again_and_serves_who_waits(pictures: World) -> None:
    world = pictures
    first, worker = world.ask("a"), world.serving("a")
    second = world.ask("a")
    world.cannot_stop(first)
    assert left(world) == [worker]
    assert second not in world.order
    world.calm()
    assert world.order == [first, second]
    assert world.serving("a") != worker
    assert world.scheduler.counters["restarts"] == 1
    assert "evictions" not in world.scheduler.counters
    notes = [(note.event, note.fields["why"]) for note in world.notes if "why" in note.fields]
    assert ("engine ended, what it works on nobody wants", "it works on for clients that are gone") in notes


def test_it_is_started_again_although_nobody_waits(pictures: World) -> None:
    world = pictures
    worker = world.serving("a")
    world.cannot_stop(world.ask("a"))
    world.calm()
    assert world.serving("a") != worker
    assert world.of_state(State.READY) == [world.serving("a")]
    assert not world.scheduler.places["a"].grants


def test_another_model_that_waits_for_its_place_gets_it(pictures: World) -> None:
    world = pictures
    first = world.ask("a")
    other = world.ask("b")
    world.cannot_stop(first)
    world.calm()
    assert world.order == [first, other]


def test_an_unload_is_an_unload(pictures: World) -> None:
    world = pictures
    world.cannot_stop(world.ask("a"))
    assert world.unload("a")
    world.calm()
    assert not world.of_state(State.READY)


def test_one_that_stops_in_time_stays(pictures: World) -> None:
    world = pictures
    key = world.ask("a")
    world.cancel(key)
    world.finish(key, "cancelled")
    assert not left(world)
