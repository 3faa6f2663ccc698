"""Messages about metrics: what gateways counted, and the call that collects from all processes and renders the text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from protocol import RELEASE
from protocol.messages.metrics import GetMetrics, MetricsCollected, RequestsObserved
from supervisor.keeper import process_tree
from supervisor.machine.process_memory import resident_bytes
from supervisor.metrics.snapshot import EngineMetrics, ModelSnapshot, ServerSnapshot
from supervisor.runtime.supervisor import Handler, Supervisor
from supervisor.scheduler.view import ModelView


def requests_observed(supervisor: Supervisor, _peer: str, message: RequestsObserved, _payload: bytes) -> None:
    """Add what a gateway has counted."""
    supervisor.metrics.requests_observed(message.series)


def metrics_collected(supervisor: Supervisor, peer: str, message: MetricsCollected, payload: bytes) -> None:
    """Take the answer of a gateway or a worker."""
    supervisor.metrics_collections.answered(peer, message.number, None if message.late else payload)


def get_metrics(supervisor: Supervisor, peer: str, call: GetMetrics, _payload: bytes) -> None:
    """Answer with all metrics as text once all processes have reported, or the time is over."""
    workers = {model.worker: model.name for model in supervisor.scheduler.view.models() if model.serves}

    def answer(answers: dict[str, bytes]) -> None:
        # The library imports an HTTP server and TLS, a tenth of all that a supervisor imports, so only scraped servers
        # import it.
        from supervisor.metrics import exposition  # noqa: PLC0415

        engines = [EngineMetrics(name, answers.get(worker)) for worker, name in workers.items()]
        now = take_snapshot(supervisor, [engine for engine in engines if engine.text != b""])
        with_mullama = supervisor.settings.mullama_metrics
        text = exposition.render(supervisor.metrics, now, with_mullama=with_mullama, models=call.models)
        supervisor.calls.answer(peer, call.number, text)

    supervisor.metrics_collections.collect([*supervisor.peers.of("gateway"), *workers], answer)


def take_snapshot(supervisor: Supervisor, engines: list[EngineMetrics]) -> ServerSnapshot:
    """Return the present state of the server. ``engines``: the answers of engines that have metrics."""
    models = supervisor.scheduler.view.models()
    serving = {model.worker for model in models if model.serves}
    processes: dict[str, int] = {}
    for each in supervisor.peers.all():
        if each.id not in serving:
            processes[each.role] = processes.get(each.role, 0) + resident_bytes(each.pid)
    return ServerSnapshot(
        version=RELEASE,
        uptime=process_tree.age(supervisor.process_context.keeper),
        active_requests=sum(model.running for model in models),
        models=[_model(supervisor, model) for model in models if model.queued or model.worker],
        process_bytes={"supervisor": resident_bytes(os.getpid()), **processes},
        bus_drops={
            "malformed": supervisor.bus.malformed,
            "undeliverable": supervisor.bus.undeliverable,
            "log_records": supervisor.logbook.lost,
        },
        internal_errors=supervisor.errors.count + supervisor.loop.errors,
        engines=engines,
        short_names=_short_names(supervisor, [*(model.name for model in models), *supervisor.metrics.average_speeds()]),
    )


def _short_names(supervisor: Supervisor, models: Iterable[str]) -> dict[str, str]:
    entries = (supervisor.models.known(name) for name in models)
    return {entry.name: entry.short_name for entry in entries if entry is not None}


def _model(supervisor: Supervisor, model: ModelView) -> ModelSnapshot:
    facts = model.facts
    if not model.serves or facts is None:
        return ModelSnapshot(model.name, loaded=False, queued=model.queued)
    return ModelSnapshot(
        model.name,
        loaded=True,
        queued=model.queued,
        slots=facts.slots,
        slots_busy=model.busy,
        parameters=facts.parameters,
        context=facts.context,
        gpu_layers=facts.gpu_layers,
        worker_bytes=resident_bytes(supervisor.workers.pid(model.worker)),
        engine_bytes=resident_bytes(facts.engine_pid),
    )


HANDLERS: Final[dict[type, Handler]] = {
    RequestsObserved: requests_observed,
    MetricsCollected: metrics_collected,
    GetMetrics: get_metrics,
}
