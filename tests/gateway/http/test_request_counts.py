"""A gateway counts its requests in a bounded space until they are reported."""

from __future__ import annotations

from gateway.api.common.dialect import endpoint_of
from gateway.http.request_counts import MAX_SERIES, RequestCounts, RouteLabels
from protocol.messages.metrics import DURATION_BUCKETS, OTHER


def counts() -> RequestCounts:
    made = RequestCounts()
    made.routes = {"/v1/models/{name}": RouteLabels("models/{name}", "openai")}
    return made


def test_requests_with_the_same_labels_are_one_series() -> None:
    counted = counts()
    for seconds in (0.001, 0.005, 0.3, 1000.0):
        counted.observe("/v1/models/{name}", 200, seconds)
    (series,) = counted.unreported()
    assert (series.endpoint, series.dialect, series.status) == ("models/{name}", "openai", 200)
    assert series.seconds == 1000.306
    assert series.buckets[0] == 2
    assert series.buckets[DURATION_BUCKETS.index(0.5)] == 1
    assert series.buckets[-1] == 1
    assert counted.unreported() == [series], "it stays until it was reported"
    counted.reported()
    assert counted.unreported() == []


def test_paths_of_clients_are_not_labels() -> None:
    counted = counts()
    for number in range(100):
        counted.observe(f"/{number}", 404, 0.1, "not_found")
    (series,) = counted.unreported()
    assert (series.endpoint, series.dialect, sum(series.buckets)) == (OTHER, OTHER, 100)


def test_there_is_a_limit_whatever_comes() -> None:
    counted = counts()
    for number in range(2 * MAX_SERIES):
        counted.observe("/", 200, 0.1, code=f"code-{number}")
    assert len(counted.unreported()) == MAX_SERIES + 1
    assert sum(sum(series.buckets) for series in counted.unreported()) == 2 * MAX_SERIES


def test_names_of_routes() -> None:
    assert endpoint_of("/v1/chat/completions") == endpoint_of("/api/v0/chat/completions") == "chat/completions"
    assert endpoint_of("/api/chat") == "api/chat"
    assert endpoint_of("/v1/models/{name}") == "models/{name}"
    assert endpoint_of("/") == "/"
