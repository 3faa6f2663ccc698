"""Engines that keep nothing between requests and work on for clients that are gone: started again, not waited for."""

from __future__ import annotations

import pytest

from protocol.messages.peers import Shutdown
from protocol.models.recipes import ModelSpec
from supervisor.scheduler.worker_lifecycle import WorkerState
from tests.supervisor import effect_player
from tests.supervisor import simulation as worlds
from tests.supervisor.simulation import Simulation


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """One model of one slot whose engine may be restarted, and that works for a client that is gone."""

    def restartable(name: str, **more: object) -> ModelSpec:
        return ModelSpec(name, "c", "sd-cpp", "cpu", "llm", "/m", restartable=True, **more)

    monkeypatch.setattr(effect_player, "spec", restartable)
    monkeypatch.setattr(worlds, "spec", restartable)
    sim = Simulation(1, 1)
    sim.load("a")
    sim.run_until_idle()
    assert sim.scheduler.settled
    return sim


def left(sim: Simulation) -> list[str]:
    return [
        name
        for name, worker in sim.workers.items()
        if any(isinstance(command, Shutdown) for command in worker.commands)
    ]


def test_it_is_started_again_and_serves_who_waits(pictures: Simulation) -> None:
    sim = pictures
    first, worker = sim.ask("a"), sim.serving("a")
    second = sim.ask("a")
    sim.cannot_stop(first)
    assert left(sim) == [worker]
    assert second not in sim.order
    sim.run_until_idle()
    assert sim.order == [first, second]
    assert sim.serving("a") != worker
    assert sim.scheduler.counters["restarts"] == 1
    assert "evictions" not in sim.scheduler.counters
    notes = [(note.event, note.fields["why"]) for note in sim.notes if "why" in note.fields]
    assert ("engine ended, the clients of its requests are gone", "it works on for clients that are gone") in notes


def test_it_is_started_again_although_nobody_waits(pictures: Simulation) -> None:
    sim = pictures
    worker = sim.serving("a")
    sim.cannot_stop(sim.ask("a"))
    sim.run_until_idle()
    assert sim.serving("a") != worker
    assert sim.of_state(WorkerState.READY) == [sim.serving("a")]
    assert not sim.scheduler.models["a"].grants


def test_another_model_that_waits_for_its_place_gets_it(pictures: Simulation) -> None:
    sim = pictures
    first = sim.ask("a")
    other = sim.ask("b")
    sim.cannot_stop(first)
    sim.run_until_idle()
    assert sim.order == [first, other]


def test_an_unload_is_an_unload(pictures: Simulation) -> None:
    sim = pictures
    sim.cannot_stop(sim.ask("a"))
    assert sim.unload("a")
    sim.run_until_idle()
    assert not sim.of_state(WorkerState.READY)


def test_one_that_stops_in_time_stays(pictures: Simulation) -> None:
    sim = pictures
    key = sim.ask("a")
    sim.cancel(key)
    sim.finish(key, "cancelled")
    assert not left(sim)
