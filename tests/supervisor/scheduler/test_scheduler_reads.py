"""Reads (``tokenize``): they need the engine but none of its slots, so they do not wait for generations."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from supervisor.scheduler.queue.grants import MAX_READS, MAX_READS_OF_KEY
from tests.supervisor.scheduler.simulation import Simulation, loaded


def read(sim: Simulation, model: str = "a", caller: str = "") -> RequestKey:
    return sim.submit(model, weight=0, endpoint="tokenize", caller=caller)


def test_a_read_loads_its_model() -> None:
    sim = Simulation()
    key = read(sim)
    sim.run_until_idle()
    assert sim.order == [key]
    assert sim.scheduler.view.busy == 0
    assert sim.scheduler.view.running == 1


def test_a_read_does_not_wait_for_a_slot_nor_take_one() -> None:
    sim = loaded("a")
    running = [sim.submit("a"), sim.submit("a")]
    waiting = sim.submit("a")
    key = read(sim)
    assert sim.order == [*running, key]
    sim.finish(running[0])
    assert sim.order == [*running, key, waiting]


def test_a_read_is_answered_although_the_queue_is_full() -> None:
    sim = loaded("a", queue_requests=1)
    for _ in range(3):
        sim.submit("a")
    assert sim.refusals[sim.submit("a")].code is Code.OVERLOADED
    assert read(sim) in sim.order


def test_reads_that_waited_for_a_load_do_not_wait_for_the_generations_before_them() -> None:
    sim = Simulation()
    generations = [sim.submit("a") for _ in range(4)]
    key = read(sim)
    sim.run_until_idle()
    assert set(sim.order) == {key, *generations[:2]}


def test_a_model_is_not_evicted_under_a_read() -> None:
    sim = loaded("a")
    key = read(sim)
    other = sim.submit("b")
    sim.run_until_idle()
    assert sim.order == [key]
    late = read(sim)
    assert late not in sim.order, "a draining model answered a read that came after the request that evicts it"
    sim.finish(key)
    sim.run_until_idle()
    assert sim.order == [key, other]
    sim.finish(other)
    sim.run_until_idle()
    assert sim.order == [key, other, late]


def test_an_idle_model_is_evicted_rather_than_one_that_answers_a_read() -> None:
    sim = loaded("a", "b", models=2)
    read(sim, "b")
    sim.pass_time(1.0)
    sim.finish(sim.submit("a"))  # used last
    sim.submit("c")
    sim.run_until_idle()
    assert set(sim.state.models) >= {"b", "c"}
    assert sim.state.models["b"].slots
    assert not getattr(sim.state.models.get("a"), "slots", 0)


def test_few_reads_run_at_once_and_the_others_wait_for_them_alone() -> None:
    sim = loaded("a")
    sim.submit("a")
    keys = [read(sim, caller=f"k{number}") for number in range(MAX_READS + 2)]
    assert sim.order[1:] == keys[:MAX_READS]
    sim.finish(keys[0])
    assert sim.order[1:] == keys[: MAX_READS + 1]


@pytest.mark.parametrize("key", ["", "long"])
def test_the_reads_of_one_key_leave_some_for_others(key: str) -> None:
    """Sixteen of 4 MiB took all threads of an engine, and 2.4 GB of memory."""
    sim = loaded("a")
    keys = [read(sim, caller=key) for _ in range(MAX_READS)]
    other = read(sim, caller="other")
    assert sim.order == [*keys[:MAX_READS_OF_KEY], other]
    sim.finish(keys[0])
    assert sim.order == [*keys[:MAX_READS_OF_KEY], other, keys[MAX_READS_OF_KEY]]


def test_a_read_says_nothing_about_how_long_a_slot_is_held() -> None:
    sim = loaded("a")
    key = read(sim)
    sim.pass_time(100.0)
    sim.finish(key)
    assert sim.state.replica_sets["a"].service_s == 0.0


def test_a_read_that_was_in_a_dying_engine_runs_alone() -> None:
    sim = loaded("a")
    key = read(sim)
    sim.engine_dies(sim.serving("a"))
    again = sim.retry(key, weight=0)
    sim.run_until_idle()
    beside = sim.submit("a")
    assert sim.order == [key, again]
    sim.finish(again)
    assert sim.order == [key, again, beside]


def test_a_returned_read_is_refused_and_asked_again() -> None:
    sim = loaded("a")
    key = read(sim)
    sim.finish(key, Code.RETURNED)
    assert sim.refusals[key].code is Code.RETURNED


def test_a_cancelled_read_ends_when_its_engine_has_answered() -> None:
    sim = loaded("a")
    key = read(sim)
    sim.cancel(key)
    assert sim.scheduler.view.running == 1
    sim.finish(key, Code.CANCELLED)
    assert sim.scheduler.view.running == 0
