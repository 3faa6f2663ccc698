"""Models with several engines: which of the devices each gets."""

from __future__ import annotations

import pytest

from protocol.messages.engines import CheckModel, EngineReady, StartEngine
from protocol.messages.models import Loaded
from protocol.messages.recovery import WorkerSnapshot
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD
from protocol.worker_states import WorkerState
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.policy import FixedPolicies, ModelPolicy
from supervisor.scheduler.recovery import recovery_events
from supervisor.scheduler.recovery.joined_snapshots import join_snapshots
from supervisor.scheduler.state import SchedulerState
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.replicas.replicated_model import worker
from tests.supervisor.scheduler.simulation import Simulation


def orders(sim: Simulation, kind: type[CheckModel | StartEngine]) -> list[CheckModel | StartEngine]:
    return [message for its in sim.workers.values() for message in its.commands if isinstance(message, kind)]


def test_each_engine_gets_another_one_of_the_devices() -> None:
    sim = Simulation(9, 2, FixedPolicies({"a": ModelPolicy(min_replicas=3, max_replicas=3)}))
    sim.load("a", devices=["0", "1"])
    sim.run_until_idle()
    assert [each.device for each in orders(sim, StartEngine)] == ["0", "1", "0"]
    sim.engine_dies(worker(sim, 2))
    sim.run_until_idle()
    assert [each.device for each in orders(sim, StartEngine)].count("1") == 2, "it is started again where it was"


@pytest.mark.parametrize(("replicas", "devices"), [(1, ["0", "1"]), (2, ["0"]), (2, [])])
def test_an_engine_without_others_or_a_choice_uses_all_of_its_devices(replicas: int, devices: list[str]) -> None:
    sim = Simulation(9, 2, FixedPolicies({"a": ModelPolicy(min_replicas=replicas, max_replicas=replicas)}))
    sim.load("a", devices=devices)
    sim.run_until_idle()
    assert {each.device for each in orders(sim, StartEngine)} == {""}


def test_a_model_that_is_too_large_for_one_device_gets_all_of_them() -> None:
    sim = Simulation(9, 2, FixedPolicies({"a": ModelPolicy(min_replicas=2, max_replicas=2)}))
    sim.machine = {HOST: 10_000, "gpu0": 1_000, "gpu1": 1_000}
    sim.load("a", 500, devices=["0", "1"])
    sim.advance_to(WorkerState.CHECKING)
    sim.checked(sim.of_state(WorkerState.CHECKING)[0], MemoryEstimate({"gpu0": PlaceNeed(1_500)}))
    sim.advance_to(WorkerState.CHECKING)
    sim.checked(sim.of_state(WorkerState.CHECKING)[0], MemoryEstimate({"gpu0": PlaceNeed(750), "gpu1": PlaceNeed(750)}))
    sim.advance_to(WorkerState.READY)
    assert [each.device for each in orders(sim, CheckModel)][:2] == ["0", ""]
    assert [each.device for each in orders(sim, StartEngine)] == [""]
    assert isinstance(sim.reports["g1", 500], Loaded)


def test_the_next_supervisor_knows_each_engine_and_its_device() -> None:
    spec_ = spec("a", devices=["0", "1"])
    facts = EngineReady(2, 4096, 1, "http://127.0.0.1:1", 0.1)
    workers = {
        f"w{number}": WorkerSnapshot(WorkerState.READY, spec_, facts, replica=number, device=device)
        for number, device in ((2, "1"), (1, "0"))
    }
    sim = Simulation(9, 2, FixedPolicies({"a": ModelPolicy(min_replicas=2, max_replicas=2)}))
    state = SchedulerState(SchedulerLimits(), lambda: "w9", policies=sim.state.policies)
    recovery_events.recovered(state, join_snapshots(workers, {}, {"w1": 0.0, "w2": 0.0}), 1.0)
    found = {each.number: each.worker for each in state.replica_sets["a"].replicas}
    assert {number: (its.id, its.device) for number, its in found.items() if its} == {1: ("w1", "0"), 2: ("w2", "1")}
    assert state.replica_sets["a"].device_for(state.models["a"], spec_, HEAD) == "0"
