"""Which counters each event increases, and that odd reports of peers do no harm."""

from __future__ import annotations

from array import array

import pytest

from protocol.failures import Code
from protocol.messages.events import Outcome
from protocol.messages.metrics import DURATION_BUCKETS, OTHER, RequestSeries
from protocol.worker_states import WorkerState
from supervisor.metrics.server_metrics import (
    DOCUMENTED_DURATION_BUCKETS,
    MAX_DIALECTS,
    MAX_ENDPOINTS,
    MAX_KEYS,
    ServerMetrics,
)
from tests.supervisor.scheduler.simulation import Simulation, loaded


def series(endpoint: str = "chat/completions", *durations: float, **more: object) -> RequestSeries:
    buckets = [0] * (len(DURATION_BUCKETS) + 1)
    for duration in durations:
        buckets[sum(duration > bound for bound in DURATION_BUCKETS)] += 1
    fields = {"dialect": "openai", "status": 200, "code": "", "inference": "", **more}
    return RequestSeries(endpoint, seconds=sum(durations), buckets=buckets, **fields)  # type: ignore[arg-type]


def test_requests_are_counted_by_route_and_by_what_the_engine_was_asked_for() -> None:
    metrics = ServerMetrics()
    metrics.requests_observed(
        [
            series("chat/completions", 0.05, 0.3, 0.7, 3.0, 9.0, inference="chat/completions"),
            series("api/chat", 0.1, dialect="mullama", inference="chat/completions", status=500, code="backend_died"),
            series("models", 0.01),
            series("slots", 0.01, inference="slots"),
        ]
    )
    assert metrics.http_requests.values == {
        ("chat/completions", "openai", "200"): 5,
        ("api/chat", "mullama", "500"): 1,
        ("models", "openai", "200"): 1,
        ("slots", "openai", "200"): 1,
    }
    assert metrics.errors.values == {("api/chat", "mullama", "backend_died"): 1}
    assert metrics.inference_requests.values == {("chat",): 6, ("generate",): 0, ("embeddings",): 0}
    assert metrics.inference_durations.distributions[()].counts == [2, 1, 1, 1, 1]
    assert metrics.inference_durations.distributions[()].sum == pytest.approx(13.15)


def test_the_documented_buckets_are_among_those_that_gateways_count_in() -> None:
    assert set(DOCUMENTED_DURATION_BUCKETS) <= set(DURATION_BUCKETS)


def test_a_generation_adds_its_tokens_and_times() -> None:
    metrics = ServerMetrics()
    times = array("f", [9.0, 0.002, 0.004]).tobytes()
    metrics.generation_ended("m", Outcome(10, 4, 3, 0.3, 0.5, 0.9, times))
    metrics.generation_ended("m", Outcome(7, 0, 0, total_s=0.1))
    metrics.generation_stopped("m", 5)
    metrics.generation_stopped("m", 0)
    assert metrics.prompt_tokens.values == {("m",): 17}
    assert metrics.cached_tokens.values == {("m",): 4}
    assert metrics.generated_tokens.values == {("m",): 8}
    assert metrics.average_speeds() == {"m": 6.0}
    assert sum(metrics.first_token.distributions[("m",)].counts) == 1
    between = metrics.inter_token.distributions[("m",)]
    assert (sum(between.counts), between.sum) == (2, pytest.approx(0.006))


def test_every_label_is_bounded() -> None:
    metrics = ServerMetrics(most_models=40)
    for number in range(3000):
        name = f"model-{number}"
        metrics.attempt_granted(name, 0.1)
        metrics.generation_ended(name, Outcome(1, 1, 2, 0.1, 0.1, 0.1, b"\0" * 8))
        metrics.model_loaded(name, 1.0)
        metrics.load_failed(name)
        metrics.engine_restarted(name, "backend_died")
        metrics.attempt_retried(name)
        metrics.attempt_refused(name)
        metrics.request_submitted(name)
        metrics.requests_observed([series(name, 0.1, dialect=name, status=number, code=name, inference=name)])
    latest = [(f"model-{number}",) for number in range(2960, 3000)]
    for per_model in (metrics.prompt_tokens, metrics.cached_tokens, metrics.generated_tokens):
        assert list(per_model.values) == latest
        assert per_model.total in (3000, 6000)
    for histogram in (metrics.queue_wait, metrics.first_token, metrics.inter_token, metrics.load_seconds):
        assert list(histogram.distributions) == latest
    assert len(metrics.average_speeds()) == 40
    assert len(metrics.loads.values) == 80
    assert len(metrics.restarts.values) == 40
    assert metrics.retries.values == metrics.refusals.values == {(OTHER,): 3000}
    assert list(metrics.key_requests.values) == [(f"model-{number}",) for number in range(3000 - MAX_KEYS, 3000)]
    assert len({labels[0] for labels in metrics.http_requests.values}) == MAX_ENDPOINTS + 1
    assert len({labels[1] for labels in metrics.http_requests.values}) == MAX_DIALECTS + 1
    assert metrics.http_requests.total == 3000
    assert {labels[2] for labels in metrics.errors.values} == {OTHER}


def test_a_loaded_model_keeps_its_series() -> None:
    metrics = ServerMetrics(most_models=2)
    metrics.keep_series_while({"loaded", "busy"}.__contains__)
    for model in ("loaded", "first", "second", "busy", "third"):
        metrics.load_failed(model)
    assert metrics.loads.values == {("loaded", "failed"): 1, ("busy", "failed"): 1, (OTHER, "failed"): 1}
    assert (metrics.has_series("loaded"), metrics.has_series("third")) == (True, False)


def test_a_supervisor_that_shows_fewer_models_keeps_the_sums() -> None:
    former = ServerMetrics(most_models=3)
    former.keep_series_while({"c"}.__contains__)
    for model in ("a", "b", "c", "d"):
        former.load_failed(model)
        former.generation_stopped(model, 5)
        former.attempt_granted(model, 0.1)
    former.loads.add((OTHER, "ok"))
    fewer = ServerMetrics(most_models=2)
    fewer.restore(former.state())
    assert fewer.loads.values == {("c", "failed"): 1, ("d", "failed"): 1, (OTHER, "ok"): 1}
    assert set(fewer.queue_wait.distributions) == {("c",), ("d",)}
    assert (fewer.generated_tokens.total, former.generated_tokens.total) == (20, 20)
    fewer.load_failed("e")
    assert set(fewer.loads.values) == {("d", "failed"), ("e", "failed"), (OTHER, "ok")}


# ---- what the scheduler notes ------------------------------------------------------------------------------------


def test_a_request_waits_for_a_load_or_for_a_slot() -> None:
    sim = Simulation(1, 1)
    first = sim.submit("a")
    second = sim.submit("a")
    sim.run_until_idle()
    sim.now += 3.0
    sim.finish(first)
    metrics = sim.state.metrics
    assert metrics.loads.values == {("a", "ok"): 1}
    waits = metrics.queue_wait.distributions[("a",)]
    assert sum(waits.counts) == 2
    assert waits.sum >= 3.0
    sim.finish(second)
    assert sum(waits.counts) == 2


def test_an_eviction_has_its_reason() -> None:
    sim = loaded("a")
    sim.submit("b")
    sim.run_until_idle()
    assert sim.state.metrics.evictions.values == {("max_loaded_models",): 1}
    assert sim.state.metrics.restarts.values == {}


def test_a_restart_has_the_code_of_the_engines_death() -> None:
    sim = loaded("a")
    sim.engine_dies(sim.serving("a"))
    sim.run_until_idle()
    assert sim.state.metrics.restarts.values == {("a", Code.BACKEND_DIED.value): 1}
    assert sim.state.metrics.evictions.values == {}


def test_a_failed_load_is_counted() -> None:
    sim = Simulation(1, 1)
    sim.hello(sim.of_state(WorkerState.SPAWNED)[0])
    sim.submit("a")
    sim.load_fails(sim.of_state(WorkerState.CHECKING)[0])
    assert sim.state.metrics.loads.values == {("a", "failed"): 1}
    assert sim.state.metrics.refusals.total == 1
