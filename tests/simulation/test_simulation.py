"""A small day on paper: every request is answered once, a day can be repeated, and its load is what was asked for."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.simulation.engines import GB, virtual_models
from tests.simulation.first_come import FirstComeCluster
from tests.simulation.growth import cluster
from tests.simulation.measures import DayResult, HourResult, WaitCounts, Waits, jain, size_of
from tests.simulation.paper_clock import PaperClock
from tests.simulation.scheduled_cluster import ScheduledCluster
from tests.simulation.traffic import Traffic
from tests.simulation.virtual_parts import ClusterSize, Faults
from tests.supervisor.scheduler.twin_scheduler import TwinScheduler


def small_day(seed: int) -> DayResult:
    traffic, size, _ = cluster(20, 500, 35.0, seed)
    result, cost = ScheduledCluster(traffic, size, Faults(engine_death=5.0, node_loss=15.0)).run()
    assert sum(number for kind, number in cost.events.items() if "submit" in kind) >= result.requests
    assert cost.memory > 0
    return result


def test_every_request_of_a_day_ends_once() -> None:
    """The cluster itself raises if an attempt is granted twice, or more is granted than an engine has slots."""
    result = small_day(1)
    assert result.requests > 150
    assert sum(result.ends.values()) == result.requests
    assert result.ends["answered"] > 0.6 * result.requests
    assert result.ends["broken"] > 0
    assert result.evictions > 0


def test_a_day_can_be_repeated() -> None:
    assert small_day(7) == small_day(7)
    assert small_day(7) != small_day(8)


@pytest.mark.parametrize("seed", [5, 17])
def test_a_look_at_everything_decides_the_same(seed: int) -> None:
    """A few nodes with little memory, whose engines and nodes fail often: the twin looks at everything after each event."""
    draw = random.Random(seed)
    nodes, workers_of_node = draw.choice([2, 3, 6, 10]), draw.choice([2, 4, 6])
    models = virtual_models(int(nodes * workers_of_node * draw.choice([1.1, 1.5, 2.5])), 0.6, 0.2, seed)
    traffic = Traffic(models, nodes * draw.choice([10, 30, 60]), 12.0, seed)
    faults = Faults(engine_death=draw.choice([1.0, 4.0]), node_loss=draw.choice([3.0, 9.0]))
    memory = draw.choice([50, 64, 100]) * GB
    size = ClusterSize(nodes, nodes * workers_of_node, memory, loaded=draw.choice([0, nodes]))
    result, _ = ScheduledCluster(traffic, size, faults, TwinScheduler).run()
    assert result.loads > 10
    assert sum(result.ends.values()) == result.requests > 15


def test_first_come_first_served_gets_the_same_requests() -> None:
    traffic, size, faults = cluster(20, 500, 60.0, 1)
    first_come = FirstComeCluster(traffic, size).run()
    lemonbus, _ = ScheduledCluster(traffic, size, faults._replace(engine_death=1e9, node_loss=1e9)).run()
    assert first_come.requests == lemonbus.requests == sum(first_come.ends.values())
    assert first_come.waits.p99 > lemonbus.waits.p99


def test_time_jumps_from_event_to_event_in_order() -> None:
    clock, seen = PaperClock(), []
    clock.after(5.0, lambda: seen.append(("late", clock.now)))
    clock.after(1.0, lambda: clock.after(2.0, lambda: seen.append(("early", clock.now))))
    while clock.step():
        pass
    assert seen == [("early", 3.0), ("late", 5.0)]


def test_hours_add_up_to_the_day() -> None:
    traffic, size, faults = cluster(20, 500, 60.0, 3)
    noted: list[HourResult] = []
    result, cost = ScheduledCluster(traffic, size, faults).run(20.0, noted.append)
    assert cost.first_loads == 19
    assert noted == result.hours
    assert [round(each.until) for each in noted[:3]] == [20, 40, 60]
    assert sum(each.requests for each in noted) == result.requests
    assert max(each.waits.worst for each in noted) == result.waits.worst
    assert all(each.simulation > each.scheduler > 0 for each in noted[:3])


def test_a_part_of_a_day_has_the_traffic_of_these_hours() -> None:
    traffic, _, _ = cluster(20, 500, 3600.0, 1)
    noon = list(traffic._replace(begin=0.45, end=0.55).arrivals(100.0))
    night = list(traffic._replace(begin=0.9, end=1.0).arrivals(100.0))
    assert 100.0 < noon[0].at < noon[-1].at < 460.0
    assert len(noon) > 2.5 * len(night)


def test_waits_are_counted_to_two_percent() -> None:
    counts = WaitCounts()
    for tenths in range(1000):
        counts.add(tenths / 10)
    median, p99, worst = msgspec.structs.astuple(counts.waits())
    assert median == pytest.approx(50.0, rel=0.02)
    assert p99 == pytest.approx(99.0, rel=0.02)
    assert worst == 99.9
    assert WaitCounts().waits() == Waits()


def test_measures() -> None:
    assert jain([2.0, 2.0, 2.0]) == 1.0
    assert jain([1.0, 0.0]) == 0.5
    assert size_of([b"x" * 1000]) > size_of([b""]) + 900
