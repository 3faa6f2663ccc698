"""`/metrics` in Prometheus's text format (version 0.0.4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from supervisor.metrics.engine_families import merge_engine_families
from supervisor.metrics.families import MULLAMA_PREFIX, OWN_PREFIX, documented_families, own_families
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import ServerSnapshot


class _Families(Collector):
    """Hands families to prometheus_client."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def render(metrics: ServerMetrics, now: ServerSnapshot, *, with_mullama: bool) -> bytes:
    """Return the text; ``with_mullama``: Mullama's documented families under its own names, too."""
    prefixes = [OWN_PREFIX, *([MULLAMA_PREFIX] if with_mullama else [])]
    uptimes = b"".join(_uptime(prefix, now.uptime) for prefix in prefixes)
    return uptimes + generate_latest(_Families(_all_families(prefixes, metrics, now)))


def _all_families(prefixes: list[str], metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Metric]:
    for prefix in prefixes:
        yield from documented_families(prefix, metrics, now)
    yield from own_families(OWN_PREFIX, metrics, now)
    yield from merge_engine_families(now.engines)


def _uptime(prefix: str, seconds: float) -> bytes:
    """Return the one family that prometheus_client cannot write: the document has a counter whose name lacks ``_total``."""
    name = f"{prefix}uptime_seconds"
    return f"# HELP {name} Seconds since the start\n# TYPE {name} counter\n{name} {seconds:.3f}\n".encode()
