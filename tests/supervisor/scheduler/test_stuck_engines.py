"""Engines that keep nothing between requests and keep working for clients that have left: they are started again instead of waited for."""

from __future__ import annotations

import pytest

from protocol.messages.peers import Shutdown
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from tests.supervisor.scheduler import effect_player
from tests.supervisor.scheduler import simulation as worlds
from tests.supervisor.scheduler.simulation import Simulation


@pytest.fixture
def restartable_sim(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """One model of one slot whose engine may be restarted, and that works for a client that is gone."""

    def restartable(name: str, **more: object) -> ModelSpec:
        return ModelSpec(name, "c", "sd-cpp", "cpu", "llm", "/m", restartable=True, **more)

    monkeypatch.setattr(effect_player, "spec", restartable)
    monkeypatch.setattr(worlds, "spec", restartable)
    sim = Simulation(1, 1)
    sim.load("a")
    sim.run_until_idle()
    assert sim.state.settled
    return sim


def stopped_workers(sim: Simulation) -> list[str]:
    return [
        name
        for name, worker in sim.workers.items()
        if any(isinstance(command, Shutdown) for command in worker.commands)
    ]


def test_it_is_started_again_and_serves_what_waits(restartable_sim: Simulation) -> None:
    sim = restartable_sim
    first, worker = sim.submit("a"), sim.serving("a")
    second = sim.submit("a")
    sim.keep_running_abandoned(first)
    assert stopped_workers(sim) == [worker]
    assert second not in sim.order
    sim.run_until_idle()
    assert sim.order == [first, second]
    assert sim.serving("a") != worker
    assert sim.state.counters["restarts"] == 1
    assert "evictions" not in sim.state.counters
    notes = [(note.event, note.fields["reason"]) for note in sim.notes if "reason" in note.fields]
    assert ("engine ended, the clients of its requests are gone", "it keeps working for clients that are gone") in notes


def test_it_is_started_again_although_nothing_waits(restartable_sim: Simulation) -> None:
    sim = restartable_sim
    worker = sim.serving("a")
    sim.keep_running_abandoned(sim.submit("a"))
    sim.run_until_idle()
    assert sim.serving("a") != worker
    assert sim.of_state(WorkerState.READY) == [sim.serving("a")]
    assert not sim.state.models["a"].grants


def test_another_model_that_waits_is_loaded_instead(restartable_sim: Simulation) -> None:
    sim = restartable_sim
    first = sim.submit("a")
    other = sim.submit("b")
    sim.keep_running_abandoned(first)
    sim.run_until_idle()
    assert sim.order == [first, other]


def test_an_unload_is_an_unload(restartable_sim: Simulation) -> None:
    sim = restartable_sim
    sim.keep_running_abandoned(sim.submit("a"))
    assert sim.unload("a")
    sim.run_until_idle()
    assert not sim.of_state(WorkerState.READY)


def test_an_engine_that_stops_in_time_stays(restartable_sim: Simulation) -> None:
    sim = restartable_sim
    key = sim.submit("a")
    sim.cancel(key)
    sim.finish(key, "cancelled")
    assert not stopped_workers(sim)
