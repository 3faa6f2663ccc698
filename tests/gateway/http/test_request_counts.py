"""A gateway counts its requests in a bounded space until they are reported."""

from __future__ import annotations

import msgspec

from gateway.api.common.dialect import endpoint_of
from gateway.http.client_disconnect import CLIENT_LEFT
from gateway.http.request_context import RequestContext
from gateway.http.request_counts import MAX_KEPT, MAX_SERIES, RequestCounts, RouteLabels
from protocol.failures import Code, Failure
from protocol.messages.events import Outcome
from protocol.messages.metrics import DURATION_BUCKETS, OTHER, FailedRequests, RequestsObserved
from protocol.messages.overview import MAX_ENDED


def counts() -> RequestCounts:
    made = RequestCounts()
    made.routes = {"/v1/models/{name}": RouteLabels("models/{name}", "openai")}
    return made


def unreported(counted: RequestCounts) -> RequestsObserved:
    report = counted.unreported()
    assert report is not None
    return report


def test_requests_with_the_same_labels_are_one_series() -> None:
    counted = counts()
    for seconds in (0.001, 0.005, 0.3, 1000.0):
        counted.observe("/v1/models/{name}", 200, seconds)
    (series,) = unreported(counted).series
    assert (series.endpoint, series.dialect, series.status) == ("models/{name}", "openai", 200)
    assert series.seconds == 1000.306
    assert series.buckets[0] == 2
    assert series.buckets[DURATION_BUCKETS.index(0.5)] == 1
    assert series.buckets[-1] == 1
    report = unreported(counted)
    assert (report.series, report.serial) == ([series], 1), "it stays until it was reported"
    counted.reported(report)
    assert counted.unreported() is None


def test_paths_of_clients_are_not_labels() -> None:
    counted = counts()
    for number in range(100):
        counted.observe(f"/{number}", 404, 0.1, "not_found")
    (series,) = unreported(counted).series
    assert (series.endpoint, series.dialect, sum(series.buckets)) == (OTHER, OTHER, 100)


def test_there_is_a_limit_whatever_comes() -> None:
    counted = counts()
    for number in range(2 * MAX_SERIES):
        counted.observe("/", 200, 0.1, code=f"code-{number}")
    assert len(unreported(counted).series) == MAX_SERIES + 1
    assert sum(sum(series.buckets) for series in unreported(counted).series) == 2 * MAX_SERIES


def test_failures_of_requests_to_models_are_counted_by_key_model_and_code() -> None:
    counted = counts()
    counted.routes = {"/v1/chat": RouteLabels("chat", "openai", inference=True), "/v1/pull": RouteLabels("pull", "x")}
    counted.failed("/v1/chat", "ci", "a", "cancelled", answered=True)
    counted.failed("/v1/chat", "ci", "a", "cancelled", answered=False)
    counted.failed("/v1/chat", "", "a", "invalid_request", answered=False)
    counted.failed("/v1/pull", "ci", "a", "offline", answered=False)
    counted.failed("/unknown", "ci", "a", "not_found", answered=False)
    assert unreported(counted).failures == [
        FailedRequests("ci", "a", "cancelled", 2, 1),
        FailedRequests("", "a", "invalid_request", 1, 0),
    ]


def test_names_that_clients_invent_for_models_take_bounded_space() -> None:
    counted = counts()
    counted.routes = {"/v1/chat": RouteLabels("chat", "openai", inference=True)}
    for number in range(2 * MAX_SERIES):
        counted.failed("/v1/chat", "ci", f"m{number}", "model_not_found", answered=False)
    failures = unreported(counted).failures
    assert len(failures) == MAX_SERIES + 1
    assert sum(each.requests for each in failures) == 2 * MAX_SERIES


def test_names_as_long_as_a_body_are_cut() -> None:
    counted = counts()
    counted.routes = {"/v1/chat": RouteLabels("chat", "openai", inference=True)}
    context = RequestContext("r.1", model="m" * 1_000_000)
    counted.ended(context, "/v1/chat", 404, 0.1, complete=True)
    counted.failed("/v1/chat", "ci", "m" * 1_000_000, "model_not_found", answered=False)
    assert len(context.model) < 1000, "what is kept until the report"
    assert len(msgspec.json.encode(unreported(counted))) < 2000


def test_the_latest_reports_are_kept_for_another_supervisor() -> None:
    counted = counts()
    for _ in range(MAX_KEPT + 2):
        counted.observe("/", 200, 0.1)
        counted.reported(unreported(counted))
    assert [report.serial for report in counted.latest] == list(range(3, MAX_KEPT + 3))


def test_names_of_routes() -> None:
    assert endpoint_of("/v1/chat/completions") == endpoint_of("/api/v0/chat/completions") == "chat/completions"
    assert endpoint_of("/api/chat") == "api/chat"
    assert endpoint_of("/v1/models/{name}") == "models/{name}"
    assert endpoint_of("/") == "/"


def test_the_last_requests_to_models_are_described() -> None:
    counted = counts()
    counted.routes = {"/v1/chat": RouteLabels("chat", "openai", inference=True), "/v1/pull": RouteLabels("pull", "x")}
    whole, failed, left = (RequestContext(f"r.{number}") for number in range(3))
    whole.model, whole.outcome = "m", Outcome(9, 4, 3, 0.25, 0.5, 1.0, queue_s=2.0)
    failed.failure = Failure(Code.HUNG, "the engine hangs", detail="secret", tokens_sent=7)
    for context, complete in ((whole, True), (failed, True), (left, False)):
        counted.ended(context, "/v1/chat", 200, 1.5, complete=complete)
    counted.ended(RequestContext("r.9"), "/v1/pull", 200, 1.5, complete=True)
    report = unreported(counted)
    assert [each.id for each in report.ended] == ["r.0", "r.1", "r.2"]
    assert [(each.code, each.message) for each in report.ended] == [
        ("", ""),
        ("backend_hung", "the engine hangs"),
        ("cancelled", CLIENT_LEFT),
    ]
    first = report.ended[0]
    assert (first.endpoint, first.dialect, first.model, first.total_s) == ("chat", "openai", "m", 1.5)
    assert (first.prompt_tokens, first.output_tokens, first.tokens_per_second) == (9, 3, 6.0)
    assert (first.queue_s, first.first_token_s) == (2.0, 0.25)
    assert report.ended[1].output_tokens == 7
    counted.reported(report)
    assert counted.unreported() is None


def test_no_more_ends_are_described_than_are_shown() -> None:
    counted = counts()
    counted.routes = {"/v1/chat": RouteLabels("chat", "openai", inference=True)}
    for number in range(3 * MAX_ENDED):
        counted.ended(RequestContext(f"r.{number}"), "/v1/chat", 200, 0.1, complete=True)
    assert [each.id for each in unreported(counted).ended] == [f"r.{2 * MAX_ENDED + n}" for n in range(MAX_ENDED)]
