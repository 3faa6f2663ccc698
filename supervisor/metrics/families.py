"""The metric families of `/metrics`: names, help texts and labels, made from counts and a snapshot. Pure.

The families that Mullama documents appear under two prefixes, with exactly the documented labels. All others are our
own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from supervisor.metrics.accumulators import MAX_MODELS, Counter, Histogram
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import ModelSnapshot, ServerSnapshot

OWN_PREFIX: Final = "lemonbus_"
MULLAMA_PREFIX: Final = "mullama_"


def documented_families(prefix: str, metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Metric]:
    """Yield the families that Mullama documents, except for ``uptime_seconds`` (``exposition.py``)."""
    loaded = [model for model in now.models if model.loaded][:MAX_MODELS]
    yield _gauge(f"{prefix}info", "The server and its version", "version", {now.version: 1})
    yield _value(f"{prefix}models_loaded", "Models that are loaded", sum(model.loaded for model in now.models))
    yield _counter(f"{prefix}requests", "Requests that an engine was asked to answer", metrics.inference_requests)
    yield _value(f"{prefix}requests_active", "Requests that engines work on", now.active_requests)
    yield _total(f"{prefix}tokens_generated", "Tokens that were generated", metrics.generated_tokens.total)
    speeds = metrics.average_speeds()
    yield _gauge(f"{prefix}tokens_per_second", "Average speed of generation", "model", speeds)
    yield _total(f"{prefix}prompt_tokens", "Tokens of prompts, cached ones included", metrics.prompt_tokens.total)
    yield _per_model(f"{prefix}model_parameters", "Parameters of a loaded model", loaded, "parameters", known_only=True)
    yield _per_model(
        f"{prefix}model_context_size", "Tokens that one request may use", loaded, "context", known_only=True
    )
    yield _per_model(f"{prefix}model_gpu_layers", "Layers of a loaded model on a device", loaded, "gpu_layers")
    used = sum(model.engine_bytes for model in now.models)
    yield _value(f"{prefix}memory_used_bytes", "Resident memory of the engines of loaded models", used)
    duration = "Duration of the requests that an engine was asked to answer"
    yield _histogram(f"{prefix}request_duration_seconds", duration, metrics.inference_durations)


def own_families(prefix: str, metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Metric]:
    """Yield all other families."""
    yield from _request_families(prefix, metrics)
    yield from _generation_families(prefix, metrics)
    yield from _model_families(prefix, metrics, now)
    yield from _process_families(prefix, now)


def _request_families(prefix: str, metrics: ServerMetrics) -> Iterator[Metric]:
    yield _counter(f"{prefix}http_requests", "Requests by route, dialect and HTTP status", metrics.http_requests)
    duration = "Duration of a request, streamed answers included"
    yield _histogram(f"{prefix}http_request_duration_seconds", duration, metrics.http_durations)
    yield _counter(f"{prefix}errors", "Requests that failed, broken streams included", metrics.errors)
    yield _counter(f"{prefix}refusals", "Requests and calls refused before they reached a worker", metrics.refusals)
    yield _counter(f"{prefix}key_requests", "Inference requests by the name of their API key", metrics.key_requests)
    yield _counter(
        f"{prefix}retries", "Requests tried again; the reason is the failure of the former attempt", metrics.retries
    )


def _generation_families(prefix: str, metrics: ServerMetrics) -> Iterator[Metric]:
    yield _histogram(f"{prefix}queue_wait_seconds", "Time that a request waited for a free slot", metrics.queue_wait)
    yield _histogram(f"{prefix}first_token_seconds", "Time from slot to first token", metrics.first_token)
    yield _histogram(f"{prefix}inter_token_seconds", "Time from one token to the next", metrics.inter_token)
    yield _counter(f"{prefix}model_prompt_tokens", "Tokens of prompts, cached ones included", metrics.prompt_tokens)
    yield _counter(f"{prefix}model_cached_tokens", "Tokens of prompts found in a cache", metrics.cached_tokens)
    yield _counter(f"{prefix}model_generated_tokens", "Tokens that were generated", metrics.generated_tokens)


def _model_families(prefix: str, metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Metric]:
    yield _counter(f"{prefix}model_loads", "Loads of models", metrics.loads)
    yield _histogram(f"{prefix}model_load_seconds", "Time from start to readiness of an engine", metrics.load_seconds)
    yield _counter(f"{prefix}evictions", "Models unloaded for another one", metrics.evictions)
    yield _counter(f"{prefix}idle_unloads", "Models unloaded because they were idle", metrics.idle_unloads)
    yield _counter(f"{prefix}engine_restarts", "Engines started again after their end", metrics.restarts)
    yield _counter(f"{prefix}engine_crashes", "Engines that died of a request", metrics.crashes)
    models = now.models[:MAX_MODELS]
    loaded = [model for model in models if model.loaded]
    yield _per_model(f"{prefix}queue_depth", "Requests that wait for a slot", models, "queued")
    yield _per_model(f"{prefix}slots", "Slots of an engine", loaded, "slots")
    yield _per_model(f"{prefix}slots_busy", "Slots in use", loaded, "slots_busy")
    yield _per_model(f"{prefix}worker_memory_bytes", "Resident memory of a worker", loaded, "worker_bytes")
    yield _per_model(f"{prefix}engine_memory_bytes", "Resident memory of an engine", loaded, "engine_bytes")
    answered = {engine.model: int(engine.text is not None) for engine in now.engines[:MAX_MODELS]}
    yield _gauge(f"{prefix}engine_metrics_up", "Whether an engine's own metrics are included", "model", answered)


def _process_families(prefix: str, now: ServerSnapshot) -> Iterator[Metric]:
    memory = "Resident memory of the processes that belong to no model"
    yield _gauge(f"{prefix}process_memory_bytes", memory, "role", now.process_bytes)
    drops = CounterMetricFamily(f"{prefix}bus_dropped", "Messages and log records that were lost", labels=["kind"])
    for kind, count in now.bus_drops.items():
        drops.add_metric([kind], count)
    yield drops
    yield _total(f"{prefix}internal_errors", "Exceptions of the server's own code", now.internal_errors)


# ---- one family --------------------------------------------------------------------------------------------------


def _value(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(name, documentation, value=value)


def _total(name: str, documentation: str, value: float) -> Metric:
    return CounterMetricFamily(name, documentation, value=value)


def _gauge(name: str, documentation: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family


def _per_model(
    name: str, documentation: str, models: Iterable[ModelSnapshot], field: str, *, known_only: bool = False
) -> Metric:
    values = {model.name: int(getattr(model, field)) for model in models}
    shown = {model: value for model, value in values.items() if value or not known_only}
    return _gauge(name, documentation, "model", shown)


def _counter(name: str, documentation: str, counter: Counter) -> Metric:
    family = CounterMetricFamily(name, documentation, labels=counter.names)
    for labels, value in counter.values.items():
        family.add_metric(labels, value)
    return family


def _histogram(name: str, documentation: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(name, documentation, labels=histogram.names)
    bounds = [*map(floatToGoString, histogram.bounds), "+Inf"]
    for labels, distribution in histogram.distributions.items():
        below, buckets = 0, []
        for bound, count in zip(bounds, distribution.counts, strict=True):
            below += count
            buckets.append((bound, below))
        family.add_metric(labels, buckets, distribution.sum)
    return family
