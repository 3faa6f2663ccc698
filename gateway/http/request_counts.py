"""Counts finished requests until they are reported to the supervisor, which shows them as metrics.

The counts are bounded: durations are counted in buckets, and a route's label is one of the route table's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway.http.ended_requests import RequestEnd
from gateway.http.request_context import RequestContext
from gateway.server_clock import SERVER_CLOCK
from protocol.failures import printable
from protocol.messages.metrics import DURATION_BUCKETS, OTHER, FailedRequests, RequestSeries, RequestsObserved
from protocol.messages.overview import MAX_ENDED

MAX_SERIES: Final = 2000
"""Series between two reports. Requests that would need more are counted under ``other``."""
MAX_MODEL_LENGTH: Final = 300
"""Characters that are kept of the name of a model: more than any model has."""


MAX_KEPT: Final = 4
"""Reports that are kept: of more seconds than one that was sent can remain unread."""


class RouteLabels(NamedTuple):
    """The name of a route in metrics."""

    endpoint: str
    """The route without its version prefix."""
    dialect: str
    inference: bool = False
    """Whether a POST is a request to a model, so that a failure counts as usage of its API key."""


UNKNOWN_ROUTE: Final = RouteLabels(OTHER, OTHER)


class _Series(NamedTuple):
    endpoint: str
    dialect: str
    status: int
    code: str
    inference: str


class _Failure(NamedTuple):
    api_key: str
    model: str
    code: str


class _Durations:
    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.buckets = [0] * (len(DURATION_BUCKETS) + 1)


class RequestCounts:
    """The requests of one gateway process that have not been reported."""

    def __init__(self) -> None:
        """Nothing was counted; all routes are unknown."""
        self.routes: Mapping[str, RouteLabels] = {}
        """Route template → its labels."""
        self._counted: dict[_Series, _Durations] = {}
        self._failures: dict[_Failure, list[int]] = {}
        """A failure of one key and model → how many requests, and how many of them the engine had answered."""
        self._ended: deque[RequestEnd] = deque(maxlen=MAX_ENDED)
        self._serial = 0
        """That of the last report."""
        self._latest: deque[RequestsObserved] = deque(maxlen=MAX_KEPT)

    def labels(self, route: str) -> RouteLabels:
        """Return the labels of a route, by its template."""
        return self.routes.get(route, UNKNOWN_ROUTE)

    def observe(self, route: str, status: int, seconds: float, code: str = "", inference: str = "") -> None:
        """Count a request.

        ``route``: the template of its route, or its path if it was refused before. ``code``: of its failure.
        ``inference``: what an engine was asked for, if any.
        """
        labels = self.labels(route)
        series = _Series(labels.endpoint, labels.dialect, status, code, inference)
        durations = self._counted.get(series)
        if durations is None:
            if len(self._counted) >= MAX_SERIES:
                series = _Series(OTHER, OTHER, status, "", inference)
            durations = self._counted.setdefault(series, _Durations())
        durations.seconds += seconds
        durations.buckets[bisect_left(DURATION_BUCKETS, seconds)] += 1

    def failed(self, route: str, api_key: str, model: str, code: str, *, answered: bool) -> None:
        """Count a POST that failed, if its route is one of requests to models.

        ``api_key``: by its name. ``answered``: the engine had completed the answer.
        """
        if not self.labels(route).inference:
            return
        failure = _Failure(api_key, printable(model, MAX_MODEL_LENGTH), code)
        if failure not in self._failures and len(self._failures) >= MAX_SERIES:
            failure = failure._replace(model="")
        counts = self._failures.setdefault(failure, [0, 0])
        counts[0] += 1
        counts[1] += answered

    def ended(self, context: RequestContext, route: str, status: int, seconds: float, *, complete: bool) -> None:
        """Keep what became of a request, if its route is one of requests to models. ``complete``: it was answered to the end."""
        labels = self.labels(route)
        if labels.inference:
            context.model = printable(context.model, MAX_MODEL_LENGTH)  # a client's text may fill a body
            end = RequestEnd(
                context, labels.endpoint, labels.dialect, status, seconds, SERVER_CLOCK.seconds(), complete
            )
            self._ended.append(end)

    def unreported(self) -> RequestsObserved | None:
        """Return what was counted since the last call of :meth:`reported`; None: nothing."""
        if not (self._counted or self._failures or self._ended):
            return None
        series = [RequestSeries(*series, each.seconds, each.buckets) for series, each in self._counted.items()]
        failures = [FailedRequests(*failure, *counts) for failure, counts in self._failures.items()]
        return RequestsObserved(series, failures, self._serial + 1, [each.shown() for each in self._ended])

    def reported(self, report: RequestsObserved) -> None:
        """Start again: this was sent to the supervisor."""
        self._serial = report.serial
        self._latest.append(report)
        self._counted.clear()
        self._failures.clear()
        self._ended.clear()

    @property
    def latest(self) -> list[RequestsObserved]:
        """The latest reports, which a supervisor that has ended may not have read."""
        return list(self._latest)

    def forget_reports(self) -> None:
        """Report nothing twice: the supervisor will know this process under another id."""
        self._latest.clear()
