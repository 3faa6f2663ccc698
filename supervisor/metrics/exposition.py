"""`/metrics` in Prometheus's text format (version 0.0.4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from protocol.config.api_keys import model_allowed
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


def render(metrics: ServerMetrics, now: ServerSnapshot, *, with_mullama: bool, models: Sequence[str] = ()) -> bytes:
    """Return the text. ``with_mullama``: also Mullama's documented families under its own names.

    ``models``: patterns of the models to show; empty: all.
    """
    prefixes = [OWN_PREFIX, *([MULLAMA_PREFIX] if with_mullama else [])]
    uptimes = b"".join(_uptime(prefix, now.uptime) for prefix in prefixes)
    return uptimes + generate_latest(_Families(_shown(_all_families(prefixes, metrics, now), models, now.short_names)))


def _shown(families: Iterable[Metric], models: Sequence[str], short_names: Mapping[str, str]) -> Iterator[Metric]:
    """Return the families without the series of hidden models. Mullama's have the names in its document."""
    for family in families:
        if models:
            family.samples = [
                sample
                for sample in family.samples
                if "model" not in sample.labels or model_allowed(models, sample.labels["model"])
            ]
        if family.name.startswith(MULLAMA_PREFIX):
            family.samples = [
                sample._replace(labels={**sample.labels, "model": short_names.get(model, model)})
                if (model := sample.labels.get("model"))
                else sample
                for sample in family.samples
            ]
        yield family


def _all_families(prefixes: list[str], metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Metric]:
    for prefix in prefixes:
        yield from documented_families(prefix, metrics, now)
    yield from own_families(OWN_PREFIX, metrics, now)
    yield from merge_engine_families(now.engines)


def _uptime(prefix: str, seconds: float) -> bytes:
    """Return the one family that prometheus_client cannot write: the documented name of a counter lacks ``_total``."""
    name = f"{prefix}uptime_seconds"
    return f"# HELP {name} Seconds since the start\n# TYPE {name} counter\n{name} {seconds:.3f}\n".encode()
