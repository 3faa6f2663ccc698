"""Messages about metrics: what gateways counted, and the call that collects from all processes and renders the text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from protocol import RELEASE
from protocol.config.settings import Settings
from protocol.messages.metrics import GetMetrics, MetricsCollected, RequestsObserved
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.internal_errors import InternalErrors
from supervisor.metrics.collection import MetricsCollections
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import EngineMetrics, ModelSnapshot, ServerSnapshot
from supervisor.models.registry import ModelRegistry
from supervisor.processes.peer_registry import PeerRegistry
from supervisor.processes.placement import ProcessFigures
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.logbook import LogBook
from supervisor.scheduler.view import ModelView, SchedulerView


@dataclass(frozen=True)
class ServerSnapshots:
    """Reads the present state of the server from all its parts."""

    loop: Loop
    bus: SupervisorBus
    peers: PeerRegistry
    processes: ProcessFigures
    models: ModelRegistry
    view: SchedulerView
    metrics: ServerMetrics
    logbook: LogBook
    errors: InternalErrors

    def take(self, engines: list[EngineMetrics]) -> ServerSnapshot:
        """Return the present state of the server. ``engines``: the answers of engines that have metrics."""
        models = self.view.models()
        serving = {model.worker for model in models if model.serves}
        processes: dict[str, int] = {}
        memory_of = self.processes.resident_bytes
        for each in self.peers.all():
            if each.id not in serving:
                processes[each.role] = processes.get(each.role, 0) + memory_of(each.id, each.pid)
        return ServerSnapshot(
            version=RELEASE,
            uptime=self.processes.server_age(),
            active_requests=sum(model.running for model in models),
            models=[self._model(model) for model in models if model.queued or model.worker],
            process_bytes={"supervisor": memory_of("", os.getpid()), **processes},
            bus_drops={
                "malformed": self.bus.malformed,
                "undeliverable": self.bus.undeliverable,
                "log_records": self.logbook.lost,
            },
            internal_errors=self.errors.count + self.loop.errors,
            engines=engines,
            short_names=self._short_names([*(model.name for model in models), *self.metrics.average_speeds()]),
        )

    def _short_names(self, models: Iterable[str]) -> dict[str, str]:
        entries = (self.models.known(name) for name in models)
        return {entry.name: entry.short_name for entry in entries if entry is not None}

    def _model(self, model: ModelView) -> ModelSnapshot:
        facts, memory_of = model.facts, self.processes.resident_bytes
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
            worker_bytes=memory_of(model.worker, self.processes.pid(model.worker)),
            engine_bytes=memory_of(model.worker, facts.engine_pid),
        )


@dataclass(frozen=True)
class MetricsCalls:
    """Takes these messages: counts in ``metrics``, and collects from other processes with ``collections``."""

    settings: Settings
    peers: PeerRegistry
    view: SchedulerView
    metrics: ServerMetrics
    collections: MetricsCollections
    snapshots: ServerSnapshots
    calls: GatewayCalls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {RequestsObserved: self._observed, MetricsCollected: self._collected, GetMetrics: self._get}

    def _observed(self, _peer: str, message: RequestsObserved, _payload: bytes) -> None:
        """Add what a gateway has counted."""
        self.metrics.requests_observed(message.series)

    def _collected(self, peer: str, message: MetricsCollected, payload: bytes) -> None:
        """Take the answer of a gateway or a worker."""
        self.collections.answered(peer, message.number, None if message.late else payload)

    def _get(self, peer: str, call: GetMetrics, _payload: bytes) -> None:
        """Answer with all metrics as text once all processes have reported, or the time is over."""
        workers = {model.worker: model.name for model in self.view.models() if model.serves}

        def answer(answers: dict[str, bytes]) -> None:
            # The library imports an HTTP server and TLS, a tenth of all that a supervisor imports, so only scraped servers
            # import it.
            from supervisor.metrics import exposition  # noqa: PLC0415

            engines = [EngineMetrics(name, answers.get(worker)) for worker, name in workers.items()]
            now = self.snapshots.take([engine for engine in engines if engine.text != b""])
            with_mullama = self.settings.mullama_metrics
            text = exposition.render(self.metrics, now, with_mullama=with_mullama, models=call.models)
            self.calls.answer(peer, call.number, text)

        self.collections.collect([*self.peers.of("gateway"), *workers], answer)
