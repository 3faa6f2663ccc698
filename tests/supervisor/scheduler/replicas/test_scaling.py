"""How many replicas are wanted: histories of loads on paper clocks."""

from __future__ import annotations

import itertools
import random
from typing import NamedTuple

import pytest

from supervisor.scheduler.replicas.scaling import MAX_WAIT_S, QUIET_S, SLOW_S, ReplicaScaling

STEP = 0.25
SLOTS = 2


class Change(NamedTuple):
    at: float
    wanted: int


def run(load: list[tuple[float, float]], seconds: float, least: int = 1, most: int = 4) -> list[Change]:
    """Run requests, each of them an arrival and a duration, on as many replicas as are wanted; return the changes."""
    scaling = ReplicaScaling(least, most)
    waiting, running = sorted(load), list[float]()
    changes, now = [Change(0.0, least)], 0.0
    while now < seconds:
        now += STEP
        running = [end for end in running if end > now]
        while waiting and waiting[0][0] <= now and len(running) < SLOTS * scaling.wanted:
            running.append(now + waiting.pop(0)[1])
            scaling.note_busy(len(running))
        waited = max(0.0, now - waiting[0][0]) if waiting else 0.0
        scaling.observe(now, waited=waited, busy=len(running), slots=SLOTS * scaling.wanted, serving=scaling.wanted)
        if scaling.wanted != changes[-1].wanted:
            changes.append(Change(now, scaling.wanted))
    return changes


def steady(at_once: float, seconds: float, lasts: float = 4.0, seed: int = 0) -> list[tuple[float, float]]:
    """Return arrivals at random moments, ``at_once`` of which run at once on average."""
    chance = random.Random(seed)
    load, at = [], 0.0
    while at < seconds:
        at += chance.expovariate(at_once / lasts)
        load.append((at, lasts))
    return load


def test_nothing_changes_without_load() -> None:
    assert [each.wanted for each in run([], 2000)] == [1]


def test_a_short_queue_changes_nothing() -> None:
    assert [each.wanted for each in run([(1.0, 4.0)] * 2 + [(1.0, 0.5)], 60)] == [1]


def test_more_after_the_next_request_has_waited_for_long_and_fewer_long_after_the_last_one() -> None:
    changes = run([(1.0, 60.0)] * 8, 3000)
    assert [each.wanted for each in changes] == [1, 2, 3, 4, 3, 2, 1]
    assert changes[1].at == pytest.approx(1 + MAX_WAIT_S + SLOW_S, abs=2 * STEP)
    assert all(later.at - one.at >= QUIET_S for one, later in itertools.pairwise(changes[3:]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("at_once", [0.5, 1.5, 3.0, 5.0, 7.0])
def test_the_number_does_not_go_up_and_down_with_a_steady_load(at_once: float, seed: int) -> None:
    changes = run(steady(at_once, 7200, seed=seed), 7200)
    settled = [each for each in changes if each.at > 1800]
    turns = sum(
        (one.wanted < two.wanted) != (two.wanted < three.wanted)
        for one, two, three in zip(settled, settled[1:], settled[2:], strict=False)
    )
    assert turns <= 2, settled


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_changes_are_one_at_a_time_within_the_bounds_and_not_too_often(seed: int) -> None:
    chance = random.Random(seed)
    load = [(chance.uniform(0, 3000), chance.choice([0.1, 3, 30, 200])) for _ in range(chance.choice([20, 200, 900]))]
    changes = run(load, 4000, least=2, most=4)
    for one, two in itertools.pairwise(changes):
        assert abs(one.wanted - two.wanted) == 1
        assert 2 <= two.wanted <= 4
        assert two.at - one.at >= (SLOW_S if two.wanted > one.wanted else QUIET_S)


def test_a_peak_between_two_looks_counts() -> None:
    scaling = ReplicaScaling(1, 2)
    scaling.wanted = 2
    for step in range(int(QUIET_S) * 2):
        scaling.note_busy(3)
        scaling.observe(float(step), waited=0.0, busy=0, slots=4, serving=2)
    assert scaling.wanted == 2


def test_nothing_is_decided_while_fewer_serve_than_are_wanted() -> None:
    scaling = ReplicaScaling(2, 4)
    for step in range(1000):
        scaling.observe(float(step), waited=100.0, busy=2, slots=2, serving=1)
    assert scaling.wanted == 2
