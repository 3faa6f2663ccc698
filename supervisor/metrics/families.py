"""The metric families of `/metrics`: names, help texts and labels, made from counts and a snapshot. Pure.

The families that Mullama documents appear under two prefixes, with exactly the documented labels. All others are our
own.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from protocol.batches.batch_states import ENDED, BatchState
from protocol.messages.batches import BatchFigures
from protocol.messages.health import LoadInProgress
from protocol.messages.node_reports import NodeReport, NodeState
from protocol.models.memory import HOST, Capacity
from protocol.models.nodes import HEAD
from supervisor.metrics.accumulators import Counter, Histogram, Labels
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import ModelSnapshot, ReplicaMemory, ServerSnapshot
from supervisor.metrics.text_format import Family

MAX_LOADS: Final = 64
"""Loads under way that are shown, the oldest ones. Their models need not have series of their own yet."""
OWN_PREFIX: Final = "lemonbus_"
MULLAMA_PREFIX: Final = "mullama_"


def documented_families(prefix: str, metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Family]:
    """Yield the families that Mullama documents."""
    loaded = [model for model in now.models if model.loaded and metrics.has_series(model.name)]
    yield _gauge(f"{prefix}info", "The server and its version", "version", {now.version: 1})
    # Mullama's document has a counter whose name does not end like a counter's.
    kind = "counter" if prefix == MULLAMA_PREFIX else "gauge"
    uptime: dict[Labels, float] = {(): round(now.uptime, 3)}
    yield Family(f"{prefix}uptime_seconds", kind, "Seconds since the start of the server", values=uptime)
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
    of_engines = "Host memory of the engines of loaded models alone: less than memory_total_bytes - memory_free_bytes"
    yield _value(f"{prefix}memory_used_bytes", of_engines, used)
    duration = "Duration of the requests that an engine was asked to answer"
    yield _histogram(f"{prefix}request_duration_seconds", duration, metrics.inference_durations)


def own_families(prefix: str, metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Family]:
    """Yield all other families."""
    yield from _request_families(prefix, metrics)
    yield _key_limits(prefix, metrics, now)
    yield from _generation_families(prefix, metrics)
    yield from _model_families(prefix, metrics, now)
    yield from _failure_families(prefix, metrics, now)
    yield from _process_families(prefix, now)
    yield from _machine_families(prefix, now)
    if now.batches is not None:
        yield from _batch_families(prefix, now.batches)
    if now.nodes:
        yield from _node_families(prefix, now.nodes)


def _request_families(prefix: str, metrics: ServerMetrics) -> Iterator[Family]:
    yield _counter(f"{prefix}http_requests", "Requests by route, dialect and HTTP status", metrics.http_requests)
    duration = "Duration of a request, streamed answers included"
    yield _histogram(f"{prefix}http_request_duration_seconds", duration, metrics.http_durations)
    yield _counter(f"{prefix}errors", "Requests that failed, broken streams included", metrics.errors)
    yield _counter(f"{prefix}refusals", "Requests and calls refused before they reached a worker", metrics.refusals)
    yield _counter(f"{prefix}key_requests", "Inference requests by the name of their API key", metrics.key_requests)
    tokens = "Tokens by the name of the API key: in prompts (in), and generated (out)"
    yield _counter(f"{prefix}key_tokens", tokens, metrics.key_tokens)
    yield _counter(
        f"{prefix}retries", "Requests tried again; the reason is the failure of the former attempt", metrics.retries
    )


def _key_limits(prefix: str, metrics: ServerMetrics, now: ServerSnapshot) -> Family:
    shown = metrics.shown_keys(each.key for each in now.key_limits)
    left: dict[Labels, float] = {(key, limit): remaining for key, limit, remaining in now.key_limits if key in shown}
    name, about = f"{prefix}key_limit_remaining", "What is left of a limit of an API key"
    return Family(name, "gauge", about, ("key", "limit"), left)


def _generation_families(prefix: str, metrics: ServerMetrics) -> Iterator[Family]:
    yield _histogram(f"{prefix}queue_wait_seconds", "Time that a request waited for a free slot", metrics.queue_wait)
    yield _histogram(f"{prefix}first_token_seconds", "Time from slot to first token", metrics.first_token)
    yield _histogram(f"{prefix}inter_token_seconds", "Time from one token to the next", metrics.inter_token)
    yield _counter(f"{prefix}model_prompt_tokens", "Tokens of prompts, cached ones included", metrics.prompt_tokens)
    yield _counter(f"{prefix}model_cached_tokens", "Tokens of prompts found in a cache", metrics.cached_tokens)
    yield _counter(f"{prefix}model_generated_tokens", "Tokens that were generated", metrics.generated_tokens)


def _model_families(prefix: str, metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Family]:
    yield _counter(f"{prefix}model_loads", "Loads of models", metrics.loads)
    yield _histogram(f"{prefix}model_load_seconds", "Time from start to readiness of an engine", metrics.load_seconds)
    yield _counter(
        f"{prefix}evictions", "Models unloaded for another one, or because memory is nearly used up", metrics.evictions
    )
    yield _counter(f"{prefix}idle_unloads", "Models unloaded because they were idle", metrics.idle_unloads)
    yield _counter(f"{prefix}engine_restarts", "Engines started again after their end", metrics.restarts)
    yield _counter(f"{prefix}engine_crashes", "Engines that died of a request", metrics.crashes)
    models = [model for model in now.models if metrics.has_series(model.name)]
    loaded = [model for model in models if model.loaded]
    yield _per_model(f"{prefix}queue_depth", "Requests that wait for a slot", models, "queued")
    yield _per_model(f"{prefix}slots", "Slots of an engine", loaded, "slots")
    yield _per_model(f"{prefix}slots_busy", "Slots in use", loaded, "slots_busy")
    labels = (
        "model",
        *(["node"] if now.nodes else []),
        *(["replica"] if any(each.replicas for each in loaded) else []),
    )
    workers: dict[Labels, float] = {}
    engines: dict[Labels, float] = {}
    for model in loaded:
        for its in model.replicas or (ReplicaMemory(0, model.worker_bytes, model.engine_bytes, model.node),):
            known = {"model": model.name, "node": its.node, "replica": str(its.number or "")}
            values = tuple(known[label] for label in labels)
            workers[values], engines[values] = its.worker_bytes, its.engine_bytes
    yield Family(f"{prefix}worker_memory_bytes", "gauge", "Resident memory of a worker", labels, workers)
    yield Family(f"{prefix}engine_memory_bytes", "gauge", "Resident memory of an engine", labels, engines)
    answered: dict[str, float] = {}
    for engine in now.engines:
        if metrics.has_series(engine.model):
            answered[engine.model] = min(answered.get(engine.model, 1), int(engine.text is not None))
    yield _gauge(f"{prefix}engine_metrics_up", "Whether an engine's own metrics are included", "model", answered)


def _failure_families(prefix: str, metrics: ServerMetrics, now: ServerSnapshot) -> Iterator[Family]:
    yield from _load_families(prefix, now.loads[:MAX_LOADS])
    shown = metrics.shown_models(each.model for each in now.failed)
    failures = {each.model: each.failures for each in now.failed if each.model in shown}
    pauses = {each.model: each.retry_in for each in now.failed if each.model in shown}
    yield _value(f"{prefix}models_failed", "Models whose last load failed, or whose engine died", len(now.failed))
    backing_off = sum(each.retry_in > 0 for each in now.failed)
    yield _value(f"{prefix}models_backing_off", "Models that are not started again for now", backing_off)
    yield _gauge(f"{prefix}model_failures", "Failures in a row of a model that has failed", "model", failures)
    yield _gauge(f"{prefix}model_retry_seconds", "Seconds until such a model may be started again", "model", pauses)
    keys = metrics.shown_keys(now.key_expiries)
    expiries = {key: expiry for key, expiry in now.key_expiries.items() if key in keys}
    yield _gauge(f"{prefix}key_expiry_timestamp_seconds", "When an API key expires, in Unix time", "key", expiries)


def _load_families(prefix: str, loads: Sequence[LoadInProgress]) -> Iterator[Family]:
    loads = [each for each in loads if not each.replica]  # the model of another one is ready
    ages = {each.model: each.age for each in loads}
    yield _gauge(
        f"{prefix}model_load_age_seconds", "Since when a model that is not ready is being loaded", "model", ages
    )
    stages: dict[Labels, float] = {(each.model, each.stage): 1 for each in loads}
    yield Family(f"{prefix}model_load_stage", "gauge", "How far a load is", ("model", "stage"), stages)
    done = {each.model: min(1.0, each.done / each.total) for each in loads if each.total}
    about = "The part of its present stage that a load has done, if its engine says so"
    yield _gauge(f"{prefix}model_load_progress_ratio", about, "model", done)


def _machine_families(prefix: str, now: ServerSnapshot) -> Iterator[Family]:
    machine, node = now.machine, ("node",) if now.nodes else ()
    memory: dict[Labels, Capacity] = {(each.place,): each for each in machine.memory}
    devices: dict[Labels, float] = {(each.shown, each.place, each.name): 1 for each in machine.devices}
    busy: dict[Labels, float] = {
        (each.shown,): each.used_percent / 100 for each in machine.devices if each.used_percent is not None
    }
    if now.nodes:
        memory = {(each.place, report.facts.name): each for report in now.nodes for each in report.memory}
        elsewhere = {
            labels: each for labels, each in memory.items() if each.place != HOST and labels != (each.place, HEAD)
        }
        devices = {(*labels, HEAD): 1 for labels in devices}
        devices |= {(place, place, each.name, name): 1 for (place, name), each in elsewhere.items()}
        busy = {(*labels, HEAD): share for labels, share in busy.items()}
        busy |= {labels: each.used_percent / 100 for labels, each in elsewhere.items() if each.used_percent is not None}
    place = ("place", *node)
    total = "Memory of the host, or what a control group allows, and of each device with its own"
    sizes: dict[Labels, float] = {labels: each.total for labels, each in memory.items()}
    yield Family(f"{prefix}memory_total_bytes", "gauge", total, place, sizes)
    free = "Memory that new work may use; page cache that no process has mapped counts"
    left: dict[Labels, float] = {labels: each.free for labels, each in memory.items()}
    yield Family(f"{prefix}memory_free_bytes", "gauge", free, place, left)
    age = "Seconds since the memory was read; a device whose driver hangs gets older"
    ages: dict[Labels, float] = {labels: each.age for labels, each in memory.items()}
    yield Family(f"{prefix}memory_reading_age_seconds", "gauge", age, place, ages)
    about = "A device, and where its memory is"
    yield Family(f"{prefix}device_info", "gauge", about, ("device", "place", "name", *node), devices)
    busy_about = "How busy a device was in the last moment"
    yield Family(f"{prefix}device_utilization_ratio", "gauge", busy_about, ("device", *node), busy)
    disks = {each.directory: each for each in machine.disks}
    free_disk = {name: each.free for name, each in disks.items()}
    yield _gauge(f"{prefix}disk_free_bytes", "Space left on the disk of a directory", "directory", free_disk)
    disk_sizes = {name: each.size for name, each in disks.items()}
    yield _gauge(f"{prefix}disk_size_bytes", "Size of the disk of a directory", "directory", disk_sizes)


def _batch_families(prefix: str, batches: BatchFigures) -> Iterator[Family]:
    states = {state.value: float(batches.open.get(state, 0)) for state in BatchState if state not in ENDED}
    yield _gauge(f"{prefix}batches", "Batches that have not ended, by their state", "state", states)
    ended: dict[Labels, float] = {(state,): number for state, number in batches.finished.items()}
    yield Family(f"{prefix}batches_ended_total", "counter", "Batches that have ended, by how", ("state",), ended)
    lines: dict[Labels, float] = {(result,): number for result, number in batches.lines.items()}
    about = "Requests of batches that have a result"
    yield Family(f"{prefix}batch_requests_total", "counter", about, ("result",), lines)


def _node_families(prefix: str, nodes: Sequence[NodeReport]) -> Iterator[Family]:
    states = dict.fromkeys((state.value for state in NodeState), 0) | Counts(node.state.value for node in nodes)
    yield _gauge(f"{prefix}nodes", "Machines of the server, by what they do for it", "state", states)
    missing = (NodeState.UNREACHABLE, NodeState.LOST)
    up = {node.facts.name: int(node.state not in missing) for node in nodes}
    yield _gauge(f"{prefix}node_up", "Whether a machine of the server answers", "node", up)
    drained = {node.facts.name: int(node.drained) for node in nodes}
    yield _gauge(f"{prefix}node_drained", "Whether an operator has drained a machine", "node", drained)
    models = {node.facts.name: len(node.models) for node in nodes}
    yield _gauge(f"{prefix}node_models", "Models that a machine has or loads", "node", models)


def _process_families(prefix: str, now: ServerSnapshot) -> Iterator[Family]:
    memory = "Resident memory of the processes that belong to no model"
    yield _gauge(f"{prefix}process_memory_bytes", memory, "role", now.process_bytes)
    yield _value(f"{prefix}ready", "Whether the models for the start are loaded, or have failed for good", now.ready)
    yield _value(f"{prefix}drained", "Whether an operator has drained the server", now.drained)
    drops: dict[Labels, float] = {(kind,): count for kind, count in now.bus_drops.items()}
    lost = "Messages and log records that were lost"
    yield Family(f"{prefix}bus_dropped_total", "counter", lost, ("kind",), drops)
    yield _total(f"{prefix}internal_errors", "Exceptions of the server's own code", now.internal_errors)


# ---- one family --------------------------------------------------------------------------------------------------


def _value(name: str, documentation: str, value: float) -> Family:
    return Family(name, "gauge", documentation, values={(): value})


def _total(name: str, documentation: str, value: float) -> Family:
    return Family(f"{name}_total", "counter", documentation, values={(): value})


def _gauge(name: str, documentation: str, label: str, values: Mapping[str, float]) -> Family:
    return Family(name, "gauge", documentation, (label,), {(value,): number for value, number in values.items()})


def _per_model(
    name: str, documentation: str, models: Iterable[ModelSnapshot], field: str, *, known_only: bool = False
) -> Family:
    values = {model.name: int(getattr(model, field)) for model in models}
    shown = {model: value for model, value in values.items() if value or not known_only}
    return _gauge(name, documentation, "model", shown)


def _counter(name: str, documentation: str, counter: Counter) -> Family:
    return Family(f"{name}_total", "counter", documentation, counter.names, counter.values)


def _histogram(name: str, documentation: str, histogram: Histogram) -> Family:
    return Family(
        name,
        "histogram",
        documentation,
        histogram.names,
        distributions=histogram.distributions,
        bounds=histogram.bounds,
    )
