"""Medians of each model's last answers, and a sample of the server every ten seconds, for an hour."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from protocol.messages.events import Outcome
from protocol.messages.overview import MAX_SAMPLES, Sample
from supervisor.metrics.percentiles import percentile
from supervisor.metrics.recent_figures import MAX_ANSWERS, MAX_OBSERVATIONS, ModelSpeed, RecentFigures
from supervisor.metrics.server_metrics import ServerMetrics


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([7.0], 0.5, 7.0),
        ([7.0], 0.95, 7.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([1.0, 2.0, 3.0], 0.5, 2.0),
        ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0),
        ([float(n) for n in range(1, 101)], 0.5, 50.0),
        ([float(n) for n in range(1, 101)], 0.95, 95.0),
        ([float(n) for n in range(1, 21)], 0.95, 19.0),
        ([1.0, 2.0], 0.0, 1.0),
        ([1.0, 2.0], 1.0, 2.0),
    ],
)
def test_percentiles(values: list[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


def answer(first: float = 0.2, queue: float = 0.0, speed: float = 10.0) -> Outcome:
    return Outcome(5, 0, 20, first, 20 / speed, 3.0, queue_s=queue)


def test_a_model_has_the_medians_of_its_last_answers() -> None:
    figures = RecentFigures()
    assert figures.speed("m") == ModelSpeed()
    for first, queue, speed in ((0.1, 0.0, 10.0), (0.3, 4.0, 30.0), (0.2, 1.0, 20.0)):
        figures.answered("m", answer(first, queue, speed))
    figures.answered("other", answer(9.0, 9.0, 9.0))
    assert figures.speed("m") == ModelSpeed(20.0, 0.2, 1.0)
    for _ in range(MAX_ANSWERS):
        figures.answered("m", answer(0.5, 0.0, 50.0))
    assert figures.speed("m") == ModelSpeed(50.0, 0.5, 0.0), "only the last ones"
    figures.forget("m")
    assert figures.speed("m") == ModelSpeed()


def test_an_answer_that_came_whole_has_no_first_token() -> None:
    figures = RecentFigures()
    figures.answered("m", answer(first=0.0, speed=40.0))
    assert figures.speed("m") == ModelSpeed(40.0, 0.0, 0.0)
    figures.take_sample(1.0, 0, 0, {})
    assert figures.samples[-1].first_token_p50 is None


def test_answers_count_for_an_hour() -> None:
    figures = RecentFigures()
    figures.answered("m", answer(0.2))
    for at in range(MAX_SAMPLES):
        figures.take_sample(float(at), 0, 0, {})
    assert figures.speed("m").first_token_s == 0.2
    figures.take_sample(0.0, 0, 0, {})
    assert figures.speed("m") == ModelSpeed()


def test_a_sample_is_of_what_happened_since_the_last_one() -> None:
    figures = RecentFigures()
    for waited in range(20):
        figures.granted(float(waited))
    figures.answered("m", answer(0.25))
    figures.produced(500)
    figures.produced(70)
    figures.take_sample(100.0, 3, 4, {"host": 7})
    figures.take_sample(110.0, 0, 0, {"host": 7})
    busy, idle = figures.samples
    assert busy == Sample(100.0, 3, 4, 57.0, 9.0, 18.0, 0.25, 0.25, {"host": 7})
    assert idle == figures.latest == Sample(110.0, memory_used={"host": 7})


def test_the_memory_is_bounded_whatever_happens() -> None:
    figures = RecentFigures()
    for number in range(3 * MAX_OBSERVATIONS):
        figures.granted(float(number))
    figures.take_sample(1.0, 0, 0, {})
    assert (figures.latest or Sample(0.0)).queue_wait_p50 == 2.5 * MAX_OBSERVATIONS - 1, "the last ones count"
    for number in range(2 * MAX_SAMPLES):
        figures.take_sample(float(number), 0, 0, {})
    assert [each.at for each in figures.samples] == [float(n) for n in range(MAX_SAMPLES, 2 * MAX_SAMPLES)]


def handed_down(state: Any) -> Any:
    """What the next supervisor reads of a state."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state))


def test_the_next_supervisor_goes_on() -> None:
    figures, successor = RecentFigures(), RecentFigures()
    for at in range(3):
        figures.take_sample(float(at), at, 0, {})
    figures.answered("m", answer(0.2, 1.0, 20.0))
    successor.restore(handed_down(figures.state()))
    assert successor.samples == figures.samples
    assert successor.latest == figures.latest
    assert successor.speed("m") == ModelSpeed(20.0, 0.2, 1.0)
    for at in range(MAX_SAMPLES + 1):
        successor.take_sample(float(at), 0, 0, {})
    assert successor.speed("m") == ModelSpeed(), "its answers have kept their age"


def test_the_counters_of_metrics_bring_them_along() -> None:
    metrics, successor = ServerMetrics(), ServerMetrics()
    metrics.generation_ended("m", answer(0.2, 1.0, 20.0))
    metrics.attempt_granted("m", 2.0)
    metrics.recent.take_sample(5.0, 1, 0, {})
    successor.restore(handed_down(metrics.state()))
    assert successor.recent.speed("m") == ModelSpeed(20.0, 0.2, 1.0)
    assert [each.queue_wait_p50 for each in successor.recent.samples] == [2.0]


def test_a_former_release_knew_nothing() -> None:
    metrics = ServerMetrics()
    metrics.restore({})
    assert metrics.recent.samples == []
    assert metrics.recent.latest is None


def test_a_model_without_series_of_its_own_has_no_figures() -> None:
    metrics = ServerMetrics(most_models=1)
    metrics.generation_ended("first", answer())
    metrics.generation_ended("second", answer())
    assert metrics.recent.speed("first") == ModelSpeed(), "it was used before the other one"
    assert metrics.recent.speed("second") != ModelSpeed()
