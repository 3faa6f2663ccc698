"""Models with several engines: how many there are, and that a model serves while one of them changes."""

from __future__ import annotations

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.models import Loaded
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.worker_states import WorkerState
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.policy import FixedPolicies, ModelPolicy
from supervisor.scheduler.replicas import scaling
from supervisor.scheduler.replicas.replica_set import model_name
from supervisor.scheduler.replicas.replication import ANOTHER_TRY_S
from tests.supervisor.scheduler.replicas.replicated_model import replicated, runs_on, wait_for_others, worker
from tests.supervisor.scheduler.simulation import Simulation


def states(sim: Simulation, name: str = "a") -> list[ModelState]:
    return [each.state for each in sim.state.replica_sets[name].replicas]


def test_a_load_is_answered_by_the_first_engine_and_the_others_follow_one_at_a_time() -> None:
    sim = Simulation(9, 2, FixedPolicies({"a": ModelPolicy(min_replicas=3, max_replicas=3)}))
    sim.load("a", 500)
    sim.advance_to(WorkerState.LOADING)
    assert states(sim) == [ModelState.LOADING]
    sim.ready(sim.of_state(WorkerState.LOADING)[0])
    assert isinstance(sim.reports["g1", 500], Loaded)
    while ModelState.READY in states(sim) and len(states(sim)) < 3:
        assert sum(state is not ModelState.READY for state in states(sim)) <= 1
        assert sim.advance()
    sim.run_until_idle()
    assert states(sim) == [ModelState.READY] * 3


def test_a_model_whose_name_looks_like_that_of_a_replica_is_a_model_of_its_own() -> None:
    sim = replicated()
    sim.load("a#2", 501)
    sim.run_until_idle()
    assert states(sim) == [ModelState.READY] * 2
    assert states(sim, "a#2") == [ModelState.READY]
    assert len(sim.of_state(WorkerState.READY)) == 3
    assert model_name(sim.state.replica_sets["a#2"].lead.key) == "a#2"


def test_the_death_of_one_engine_refuses_nothing_that_another_one_serves() -> None:
    sim = replicated(slots=1)
    keys = [sim.submit("a") for _ in range(3)]
    for _ in range(sim.state.limits.restarts.deaths + 1):
        lost = sim.engine_dies(worker(sim, 1))
        again = [sim.retry(key) for key in lost]
        sim.run_until_idle()
    assert not sim.refusals
    assert sim.state.models["a"].state is ModelState.BACKING_OFF or not sim.state.models["a"].keep_loaded
    sim.finish(keys[1])
    assert [runs_on(sim, key) for key in (*again, keys[2])].count(2) == 1


def test_a_retry_is_granted_at_once_on_another_engine() -> None:
    sim = replicated()
    key = sim.submit("a")
    assert sim.engine_dies(worker(sim, 1)) == [key]
    assert runs_on(sim, sim.retry(key)) == 2


def test_a_worker_that_dies_is_replaced_while_the_other_one_serves() -> None:
    sim = replicated()
    sim.worker_dies(worker(sim, 1))
    assert runs_on(sim, sim.submit("a")) == 2
    sim.run_until_idle()
    assert states(sim) == [ModelState.READY] * 2


def test_an_unload_is_answered_when_all_engines_are_gone() -> None:
    sim = replicated()
    running = sim.submit("a")
    sim.unload("a", 901)
    sim.run_until_idle()
    assert ("g1", 901) not in sim.reports
    sim.finish(running)
    sim.run_until_idle()
    assert sim.reports["g1", 901] == ["a"]
    assert "a" not in sim.state.replica_sets


def test_other_options_are_loaded_into_one_engine_after_the_other() -> None:
    sim = replicated(3)
    sim.load("a", 600, options={"ctx_size": 2048})
    served = []
    while sim.advance():
        ready = [each for each in sim.state.replica_sets["a"].replicas if each.state is ModelState.READY]
        served.append(len(ready))
        assert len(ready) >= 2, "more than one is loaded at a time"
        if ("g1", 600) in sim.reports:  # a request that was made for the new options finds them
            key = sim.submit("a")
            of = sim.state.replica_sets["a"].replica(runs_on(sim, key))
            assert of is not None
            assert of.spec is not None
            assert of.spec.options == {"ctx_size": 2048}
            sim.finish(key)
    assert {str(each.spec.options) for each in sim.state.models.values() if each.spec} == {"{'ctx_size': 2048}"}
    assert states(sim) == [ModelState.READY] * 3


def test_options_that_do_not_start_leave_all_engines_as_they_were() -> None:
    sim = replicated()
    sim.load("a", 600, options={"ctx_size": 2048})
    sim.advance_to(WorkerState.LOADING)
    sim.load_fails(sim.of_state(WorkerState.LOADING)[0])
    assert sim.refusals[RequestKey("g1", 600, 0)].code is Code.LOAD_FAILED
    sim.run_until_idle()
    assert states(sim) == [ModelState.READY] * 2
    assert all(each.spec is not None and not each.spec.options for each in sim.state.models.values())


def test_the_idle_time_of_a_model_ends_when_no_engine_was_used() -> None:
    sim = replicated(ttl=100)
    for _ in range(3):
        sim.pass_time(60)
        key = sim.submit("a")
        sim.finish(key)
    assert states(sim) == [ModelState.READY] * 2
    sim.pass_time(101)
    sim.run_until_idle()
    assert "a" not in sim.state.replica_sets


def test_a_further_engine_evicts_no_model_and_is_tried_again() -> None:
    sim = Simulation(9, 2, FixedPolicies({"a": ModelPolicy(min_replicas=2, max_replicas=2)}))
    sim.machine = {HOST: 2_500}
    sim.estimates = {name: MemoryEstimate({HOST: PlaceNeed(1_000)}) for name in "ab"}
    for number, name in enumerate("ba"):
        sim.load(name, 500 + number)
        sim.run_until_idle()
    assert {name: model.state for name, model in sim.state.models.items() if model.worker} == {
        "a": ModelState.READY,
        "b": ModelState.READY,
    }
    sim.unload("b")
    sim.run_until_idle()
    wait_for_others(sim, ANOTHER_TRY_S + 1)
    assert states(sim) == [ModelState.READY] * 2


def test_one_engine_is_evicted_and_the_other_one_serves() -> None:
    sim = replicated(models=2)
    running = sim.submit("a")
    sim.submit("b")
    sim.run_until_idle()
    assert states(sim)[0] is ModelState.READY
    assert runs_on(sim, running) == 1
    assert sim.state.models["b"].state is ModelState.READY


def test_an_engine_that_is_to_leave_takes_no_later_request() -> None:
    sim = replicated(models=2)
    for _ in range(2):
        sim.submit("a")
    sim.submit("b")
    sim.advance_to(WorkerState.CHECKED)
    leaving = states(sim).index(ModelState.DRAINING) + 1
    later = [sim.submit("a") for _ in range(2)]
    assert [runs_on(sim, key) for key in later] == [3 - leaving, 0]


def test_more_engines_while_requests_wait_and_fewer_when_it_was_quiet_for_long() -> None:
    sim = replicated(1, 3)
    keys = [sim.submit("a") for _ in range(4)]
    wait_for_others(sim, scaling.MAX_WAIT_S + scaling.SLOW_S - 0.5)
    assert states(sim) == [ModelState.READY], "before the wait was long enough"
    wait_for_others(sim, 1)
    assert states(sim) == [ModelState.READY] * 2
    assert all(runs_on(sim, key) for key in keys)
    for key in keys:
        sim.finish(key)
    wait_for_others(sim, scaling.QUIET_S - 10)
    assert states(sim) == [ModelState.READY] * 2
    wait_for_others(sim, 20)
    assert states(sim) == [ModelState.READY]


def test_a_model_that_is_used_again_is_not_forgotten_with_what_was_known_of_it_before() -> None:
    sim = Simulation(2, 1, FixedPolicies({"a": ModelPolicy(min_replicas=2, max_replicas=2)}))
    sim.submit("a", ttl=0.0)
    sim.run_until_idle()
    for key in list(sim.live):
        sim.finish(key)
    sim.run_until_idle()
    assert "a" not in sim.state.replica_sets
    waiting = sim.submit("a")
    wait_for_others(sim, ANOTHER_TRY_S * 2)
    assert runs_on(sim, waiting)
