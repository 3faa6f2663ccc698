"""The whole text of `/metrics`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector

from protocol.config.api_keys import model_allowed
from supervisor.metrics.engine_families import merge_engine_families
from supervisor.metrics.families import MULLAMA_PREFIX, OWN_PREFIX, documented_families, own_families
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import ServerSnapshot
from supervisor.metrics.text_format import encode


class _EngineFamilies(Collector):
    """Hands families to prometheus_client."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def render(metrics: ServerMetrics, now: ServerSnapshot, *, with_mullama: bool, models: Sequence[str] = ()) -> bytes:
    """Return the text. ``with_mullama``: also Mullama's documented families under its own names.

    ``models``: patterns of the models to show; empty: all. Mullama's families have the names in its document.
    """

    def shown(model: str) -> str | None:
        return model if not models or model_allowed(models, model) else None

    def shown_by_mullama(model: str) -> str | None:
        return now.short_names.get(model, model) if shown(model) is not None else None

    text = encode(documented_families(OWN_PREFIX, metrics, now), shown)
    text += encode(own_families(OWN_PREFIX, metrics, now), shown)
    if with_mullama:
        text += encode(documented_families(MULLAMA_PREFIX, metrics, now), shown_by_mullama)
    engines = [engine for engine in now.engines if shown(engine.model) is not None]
    return text + generate_latest(_EngineFamilies(merge_engine_families(engines)))
