"""Metrics: what gateways count and report, and the call that collects and renders everything.

Gateways count their requests themselves and report once a second, with the answer to each `Ping`, so a request causes
no message. What is counted between two reports has a bounded size, because durations are counted in buckets.
"""

from __future__ import annotations

from typing import Final

import msgspec

from protocol.messages.calls import repeated_call
from protocol.times import Seconds, UnixTime
from protocol.wire.envelope import control_message

DURATION_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the duration buckets in seconds; one more bucket takes longer requests."""
OTHER: Final = "other"
"""The label value for everything without a value of its own, which bounds the number of series."""


class RequestSeries(msgspec.Struct, frozen=True, array_like=True):
    """How many requests since the last report have all these values in common."""

    endpoint: str
    """The route without its version prefix (``chat/completions``, ``models/{id}``), or :data:`OTHER`."""
    dialect: str
    status: int
    """HTTP status."""
    code: str
    """The failure's code, empty if there was none."""
    inference: str
    """What an engine was asked for: an endpoint of the internal format; empty for all other requests."""
    seconds: Seconds
    """Sum of the durations."""
    buckets: list[int]
    """How many durations fell into each bucket of :data:`DURATION_BUCKETS`, and how many are longer."""


class FailedRequests(msgspec.Struct, frozen=True, array_like=True):
    """How many inference requests of one API key, for one model, ended with one failure."""

    api_key: str
    """Its name, empty without keys."""
    model: str
    """As the client or the server calls it; empty: unknown."""
    code: str
    requests: int
    answered: int = 0
    """Those of them whose answer the engine had completed, so that its worker counts them."""


class EndedRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a model that has ended, in whatever way."""

    id: str
    """Its ``X-Request-ID``."""
    ended_at: UnixTime
    total_s: Seconds
    """From its arrival to the end of its answer."""
    endpoint: str
    """The route without its version prefix, such as ``chat/completions``."""
    dialect: str = ""
    model: str = ""
    key: str = ""
    status: int = 200
    """HTTP status. A stream that failed has 200 and a ``code``."""
    code: str = ""
    """The failure's code; empty: the answer is whole."""
    message: str = ""
    """What the client was told."""
    queue_s: Seconds = 0.0
    first_token_s: Seconds = 0.0
    prompt_tokens: int = 0
    output_tokens: int = 0
    tokens_per_second: float = 0.0


@control_message
class RequestsObserved(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway → supervisor: the requests that have ended since the gateway's last report.

    The latest reports are sent again to a supervisor that takes over, because the last one may not have read them.
    """

    series: list[RequestSeries]
    failures: list[FailedRequests] = []
    serial: int = 0
    """Its place among the gateway's reports, from 1, so that none is counted twice."""
    ended: list[EndedRequest] = []
    """The last requests to models among them."""


@repeated_call
class GetMetrics(msgspec.Struct, frozen=True):
    """→ ``bytes``: all metrics in Prometheus's text format.

    ``models``: patterns of the models that the caller's key may use, if not all. Series of other models are left out.
    ``mullama``: with the metrics that Mullama documents, under their names there.
    """

    number: int
    models: list[str] = []
    mullama: bool = False


@control_message
class CollectMetrics(msgspec.Struct, frozen=True):
    """Supervisor → gateways, and workers with a model: report the counts, then answer at once."""

    number: int


@control_message
class MetricsCollected(msgspec.Struct, frozen=True, omit_defaults=True):
    """Gateway or worker → supervisor: the answer, after everything else it has to report.

    The payload is what a worker's engine answers under ``/metrics``, empty if the engine has no metrics.
    """

    number: int
    late: bool = False
    """The engine has metrics, but did not answer in time."""
