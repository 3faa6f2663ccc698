"""Memory is nearly used up: which model leaves, how many at a time, and which ones never do."""

from __future__ import annotations

from protocol.worker_states import WorkerState
from supervisor.scheduler.memory.known_memory import SHORT_S
from tests.supervisor.scheduler.simulation import Simulation, loaded


def loaded_models(sim: Simulation) -> set[str]:
    return {model.name for model in sim.state.models.values() if model.loaded}


def test_the_model_that_was_idle_longest_leaves_and_is_not_loaded_again_for_nothing() -> None:
    sim = loaded("a", "b", "c", models=3)
    sim.now += 5.0
    sim.finish(sim.submit("a"))
    sim.memory_is_short()
    sim.run_until_idle()
    assert loaded_models(sim) == {"a", "c"}
    sim.pass_time(100.0)
    assert loaded_models(sim) == {"a", "c"}
    key = sim.submit("b")
    sim.run_until_idle()
    assert key in sim.order


def test_one_leaves_at_a_time() -> None:
    sim = loaded("a", "b", "c", models=3)
    for _ in range(5):
        sim.memory_is_short()
    assert len(sim.of_state(WorkerState.LEAVING)) == 1, "its memory is not back yet"
    sim.run_until_idle()
    sim.memory_is_short()
    sim.run_until_idle()
    assert loaded_models(sim) == {"c"}


def test_busy_and_pinned_models_stay_and_so_does_one_that_is_being_loaded() -> None:
    sim = loaded("a", "b", models=3)
    sim.submit("a")
    sim.pin("b")
    sim.submit("c")
    while not sim.of_state(WorkerState.LOADING):
        assert sim.advance()
    sim.memory_is_short()
    assert not sim.of_state(WorkerState.LEAVING)
    sim.run_until_idle()
    assert loaded_models(sim) == {"a", "b", "c"}


def test_no_worker_is_started_before_it_is_needed() -> None:
    sim = loaded("a", models=3)
    sim.submit("a")
    assert len(sim.of_state(WorkerState.SPARE)) == 1
    sim.memory_is_short()
    sim.submit("b")
    sim.run_until_idle()
    assert loaded_models(sim) == {"a", "b"}
    assert len(sim.workers) == 2, "the spare one has loaded it, and a third would take memory"
    sim.memory_is_short()
    sim.submit("c")
    sim.run_until_idle()
    assert loaded_models(sim) == {"a", "b", "c"}, "a load that waits gets one"
    assert len(sim.workers) == 3
    sim.pass_time(SHORT_S)
    sim.run_until_idle()
    assert len(sim.of_state(WorkerState.SPARE)) == 1


def test_a_model_that_requests_wait_for_stays() -> None:
    sim = loaded("a", slots=1)
    running, waiting = sim.submit("a"), sim.submit("a")
    sim.finish(running)
    sim.memory_is_short()
    sim.finish(waiting)
    assert sim.order == [running, waiting]


def test_the_counter_and_the_log_say_why() -> None:
    sim = loaded("a")
    sim.memory_is_short()
    assert sim.state.metrics.evictions.values == {("pressure",): 1}
    (line,) = [each for each in sim.notes if each.event == "unloading a model, memory is nearly used up"]
    assert (line.level, line.fields["model"], line.fields["place"]) == ("warning", "a", "the machine")
    sim.run_until_idle()
    sim.read_memory()
    (after,) = [each for each in sim.notes if each.event == "model evicted"]
    assert after.fields.keys() - line.fields.keys() == {"freed", "free_after"}, "what is known only afterwards"
    assert {name: line.fields[name] for name in after.fields.keys() & line.fields.keys()} == {
        name: after.fields[name] for name in after.fields.keys() & line.fields.keys()
    }
