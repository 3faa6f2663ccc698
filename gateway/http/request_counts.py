"""Counts finished requests until they are reported to the supervisor, which shows them as metrics.

The counts are bounded: durations are counted in buckets, and a route's label is one of the route table's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

from protocol.messages.metrics import DURATION_BUCKETS, OTHER, RequestSeries

MAX_SERIES: Final = 2000
"""Series between two reports. Requests that would need more are counted under ``other``."""


class RouteLabels(NamedTuple):
    """The name of a route in metrics."""

    endpoint: str
    """The route without its version prefix."""
    dialect: str


UNKNOWN_ROUTE: Final = RouteLabels(OTHER, OTHER)


class _Series(NamedTuple):
    endpoint: str
    dialect: str
    status: int
    code: str
    inference: str


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

    def observe(self, route: str, status: int, seconds: float, code: str = "", inference: str = "") -> None:
        """Count a request.

        ``route``: the template of its route, or its path if it was refused before. ``code``: of its failure.
        ``inference``: what an engine was asked for, if any.
        """
        labels = self.routes.get(route, UNKNOWN_ROUTE)
        series = _Series(labels.endpoint, labels.dialect, status, code, inference)
        durations = self._counted.get(series)
        if durations is None:
            if len(self._counted) >= MAX_SERIES:
                series = _Series(OTHER, OTHER, status, "", inference)
            durations = self._counted.setdefault(series, _Durations())
        durations.seconds += seconds
        durations.buckets[bisect_left(DURATION_BUCKETS, seconds)] += 1

    def unreported(self) -> list[RequestSeries]:
        """Return what was counted since the last call of :meth:`reported`."""
        return [RequestSeries(*series, each.seconds, each.buckets) for series, each in self._counted.items()]

    def reported(self) -> None:
        """Start again: everything was sent to the supervisor."""
        self._counted.clear()
