"""Requests of several keys in the scheduler: a key with many requests delays another key by only one turn."""

from __future__ import annotations

from protocol.failures import Code
from tests.supervisor.scheduler.simulation import loaded


def test_a_key_that_sends_much_does_not_delay_another_key() -> None:
    sim = loaded("a")
    running = [sim.submit("a", caller="greedy") for _ in range(2)]
    waiting = [sim.submit("a", caller="greedy", size=8000) for _ in range(10)]
    late = sim.submit("a", caller="modest", size=8000)
    sim.finish(running[0])
    sim.finish(running[1])
    assert late in sim.order[-2:]
    assert waiting[0] in sim.order


def test_within_a_key_and_without_keys_it_is_first_come_first_served() -> None:
    for caller in ("", "one"):
        sim = loaded("a")
        keys = [sim.submit("a", caller=caller, size=size) for size in (10, 10, 90_000, 10, 5000, 10)]
        while sim.live:
            sim.finish(sim.workers[sim.serving("a")].running[0])
        assert sim.order == keys


def test_one_key_cannot_fill_the_queue_for_others() -> None:
    sim = loaded("a", queue_requests=3)
    for _ in range(2 + 3):
        sim.submit("a", caller="greedy")
    refused = sim.submit("a", caller="greedy")
    assert sim.refusals[refused].code is Code.OVERLOADED
    accepted = sim.submit("a", caller="modest")
    assert accepted not in sim.refusals


def test_one_key_cannot_fill_the_bytes_of_the_queue_for_others() -> None:
    sim = loaded("a", queue_bytes=100)
    for _ in range(2):
        sim.submit("a", caller="greedy")
    accepted = sim.submit("a", caller="greedy", size=40)
    refused = sim.submit("a", caller="greedy", size=40)
    assert sim.refusals[refused].code is Code.OVERLOADED
    assert not sim.refusals.keys() & {accepted, sim.submit("a", caller="modest", size=40)}


def test_tokens_are_kept_for_what_runs_and_waits() -> None:
    sim = loaded("a")
    running = [sim.submit("a", caller="one", size=size) for size in (1, 2)]
    waiting = [sim.submit("a", caller="one", size=size) for size in (10, 20)]
    sim.submit("a", caller="other", size=500)
    sim.submit("b", caller="one", size=40)
    sim.submit("a", size=1000)
    reserved = sim.scheduler.view.reserved_tokens
    assert (reserved("one"), reserved("other"), reserved("none")) == (1 + 2 + 10 + 20 + 40, 500, 0)
    sim.cancel(waiting[1])
    assert reserved("one") == 1 + 2 + 10 + 40
    sim.finish(running[0])
    assert reserved("one") == 2 + 10 + 40


def test_a_request_that_waits_is_announced_once_with_its_position() -> None:
    sim = loaded("a")
    for _ in range(2):
        sim.submit("a", caller="greedy")
    waiting = [sim.submit("a", caller="greedy", size=8000) for _ in range(3)]
    late = sim.submit("a", caller="modest", size=8000)
    assert sim.positions == {}, "short waits are not worth a message"
    sim.pass_time(0.3)
    assert sorted(sim.positions) == sorted([*waiting, late])
    assert sorted(sim.positions.values()) == [1, 2, 3, 4]
    assert sim.positions[late] <= 2
    sim.positions.clear()
    sim.pass_time(0.3)
    assert sim.positions == {}


def test_a_model_that_is_to_be_evicted_serves_no_key_that_came_later() -> None:
    sim = loaded("a")
    running = [sim.submit("a", caller="greedy") for _ in range(2)]
    before = sim.submit("a", caller="greedy", size=90_000)
    other = sim.submit("b", caller="other")
    after = sim.submit("a", caller="modest")
    for key in running:
        sim.finish(key)
    assert before in sim.order
    assert after not in sim.order
    sim.finish(before)
    sim.run_until_idle()
    assert sim.order[-1] == other
