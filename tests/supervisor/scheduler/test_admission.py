"""A full queue refuses requests, and says when to try again."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.messages.events import Outcome
from tests.supervisor.scheduler.simulation import loaded


def test_a_full_queue_refuses_with_an_estimate() -> None:
    sim = loaded("a", queue_requests=3)
    for _ in range(5):
        sim.submit("a")
    key = sim.submit("a")
    assert sim.refusals[key].code is Code.OVERLOADED
    assert sim.refusals[key].retry_after >= 1.0


@pytest.mark.parametrize("seconds", [2.0, 6.0, 90.0])
@pytest.mark.parametrize("most", [3, 12])
def test_the_estimate_is_measured_service_time_times_those_ahead(seconds: float, most: int) -> None:
    sim = loaded("a", queue_requests=most)
    for _ in range(3):
        key = sim.submit("a")
        sim.pass_time(seconds)
        sim.finish(key)
    slots = sim.state.models["a"].slots
    ahead = [sim.submit("a") for _ in range(slots + most)]
    estimate = sim.refusals[sim.submit("a")].retry_after
    assert estimate == pytest.approx(seconds * len(ahead) / slots)


def test_a_queue_full_of_bytes_refuses() -> None:
    sim = loaded("a", queue_bytes=100)
    for _ in range(3):
        sim.submit("a", size=90)
    assert sim.refusals[sim.submit("a", size=90)].code is Code.OVERLOADED


@pytest.mark.parametrize("limits", [{"queue_requests": 3}, {"queue_bytes": 40}])
def test_a_full_queue_takes_the_later_pieces_of_a_request(limits: dict[str, int]) -> None:
    sim = loaded("a", **limits)
    queued = [sim.submit("a") for _ in range(12)]
    assert queued[-1] in sim.refusals
    piece = sim.submit("a", earlier=Outcome())
    assert piece not in sim.refusals
    assert sim.state.models["a"].queue.has(piece), "it waits its turn"
