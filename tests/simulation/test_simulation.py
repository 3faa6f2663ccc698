"""A small day on paper: every request is answered once, a day can be repeated, and its load is what was asked for."""

from __future__ import annotations

import pytest

from tests.simulation.engines import GB, virtual_models
from tests.simulation.first_come import FirstComeCluster
from tests.simulation.growth import cluster
from tests.simulation.measures import DayResult, jain, size_of
from tests.simulation.paper_clock import PaperClock
from tests.simulation.scheduled_cluster import ScheduledCluster
from tests.simulation.traffic import Traffic
from tests.simulation.virtual_parts import ClusterSize, Faults
from tests.supervisor.scheduler.twin_scheduler import TwinScheduler


def small_day(seed: int) -> DayResult:
    traffic, size, _ = cluster(20, 300, 25.0, seed)
    result, cost = ScheduledCluster(traffic, size, Faults(engine_death=5.0, node_loss=15.0)).run()
    assert cost.events["submit"] >= result.requests
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


@pytest.mark.parametrize("seed", [1, 2])
def test_a_look_at_everything_decides_the_same(seed: int) -> None:
    """Six nodes with little memory, whose engines and nodes fail often: the twin looks at everything after each event."""
    traffic = Traffic(virtual_models(36, 0.6, 0.2, seed), 120, 10.0, seed)
    faults = Faults(engine_death=4.0, node_loss=9.0)
    cluster_of_six = ScheduledCluster(traffic, ClusterSize(6, 24, 64 * GB), faults, TwinScheduler)
    result, _ = cluster_of_six.run()
    assert result.loads > 10
    assert sum(result.ends.values()) == result.requests > 15


def test_first_come_first_served_gets_the_same_requests() -> None:
    traffic, size, faults = cluster(20, 300, 40.0, 1)
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


def test_measures() -> None:
    assert jain([2.0, 2.0, 2.0]) == 1.0
    assert jain([1.0, 0.0]) == 0.5
    assert size_of([b"x" * 1000]) > size_of([b""]) + 900
