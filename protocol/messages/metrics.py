"""Metrics: what gateways count and report, and the call that collects and renders everything.

Gateways count their requests themselves and report with the answer to each `Ping`, once a second: a request causes no
message. What is counted between two reports has a bounded size, because durations are counted in buckets.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.wire.envelope import control_message

DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of a request's duration in seconds; one more bucket takes what is longer."""
OTHER: Final = "other"
"""The label value for everything that gets no value of its own, so that the number of series stays bounded."""


class RequestSeries(msgspec.Struct, frozen=True, array_like=True):
    """Requests that have all these in common, since the last report."""

    endpoint: str
    """The route without its version prefix (``chat/completions``, ``models/{id}``), or :data:`OTHER`."""
    dialect: str
    status: int
    """HTTP status."""
    code: str
    """The failure's code, empty if there was none."""
    inference: str
    """What an engine was asked for: an endpoint of the internal format; empty for all other requests."""
    seconds: float
    """Sum of the durations."""
    buckets: list[int]
    """How many durations are in each bucket of :data:`DURATION_BUCKETS`, and how many are longer."""


@control_message
class RequestsObserved(msgspec.Struct, frozen=True):
    """Gateway → supervisor: the requests that have ended since its last report."""

    series: list[RequestSeries]


@control_message
class GetMetrics(msgspec.Struct, frozen=True):
    """→ ``bytes``: all metrics in Prometheus's text format.

    ``models``: patterns of the models that the caller's key may use, if not all; series of others are left out.
    """

    number: int
    models: list[str] = []


@control_message
class CollectMetrics(msgspec.Struct, frozen=True):
    """Supervisor → gateways and workers with a model: report what was counted, then answer at once."""

    number: int


@control_message
class MetricsCollected(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway or worker → supervisor: the answer, after all that it has to report.

    The payload is what a worker's engine answers under ``/metrics``, empty if the engine has no metrics.
    """

    number: int
    late: bool = False
    """The engine has metrics, and did not answer in time."""
