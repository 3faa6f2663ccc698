"""Messages about metrics: what gateways counted, and the call that collects from all processes and renders the text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from protocol import RELEASE
from protocol.config.settings import Settings
from protocol.messages.batches import BatchFigures
from protocol.messages.health import FailedModel, LoadInProgress
from protocol.messages.metrics import GetMetrics, MetricsCollected, RequestsObserved
from protocol.messages.peers import Peer
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.handlers.reported_nodes import ReportedNodes
from supervisor.machine.disk_space import DiskSpaces
from supervisor.metrics.collection import MetricsCollections
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.metrics.snapshot import (
    EngineMetrics,
    MachineSnapshot,
    ModelSnapshot,
    RemainingLimit,
    ReplicaMemory,
    ServerSnapshot,
)
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.persistence.server_record import ServerRecord
from supervisor.processes.placement import ProcessFigures
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.server_counters import ServerCounters
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import ModelView
from supervisor.usage.accounting import Accounting


class ServerSnapshots:
    """Reads the present state of the server."""

    def __init__(
        self,
        peers: Callable[[], list[Peer]],
        processes: ProcessFigures,
        known: Callable[[str], CatalogueEntry | None],
        view: SchedulerView,
        counters: ServerCounters,
        record: ServerRecord,
        loads: Callable[[], list[LoadInProgress]],
        failed: Callable[[], list[FailedModel]],
        key_expiries: Callable[[], dict[str, float]],
        key_limits: Callable[[], list[RemainingLimit]],
        machine: Callable[[], MachineSnapshot],
        nodes: ReportedNodes,
        batches: Callable[[], BatchFigures | None],
    ) -> None:
        """``peers`` returns the processes on the bus, ``known`` a model by its registered name; the others the present state."""
        self._peers, self._processes, self._known = peers, processes, known
        self._view, self._counters, self._record = view, counters, record
        self._key_limits, self._nodes, self._batches = key_limits, nodes, batches
        self._loads, self._failed, self._key_expiries, self._machine = loads, failed, key_expiries, machine

    def take(self, engines: list[EngineMetrics], measured: Iterable[str]) -> ServerSnapshot:
        """Return the present state of the server.

        ``engines``: the answers of engines that have metrics. ``measured``: models that are reported, loaded or not.
        """
        models = self._view.models()
        serving = {worker for model in models if model.serves for worker in model.workers}
        processes: dict[str, int] = {}
        memory_of = self._processes.resident_bytes
        for each in self._peers():
            # The pid of an agent or a gateway elsewhere, which no placement has started, means another process here.
            is_known = not each.node or self._processes.node_of(each.id) == each.node
            if each.id not in serving and is_known:
                processes[each.role] = processes.get(each.role, 0) + memory_of(each.id, each.pid)
        return ServerSnapshot(
            version=RELEASE,
            uptime=self._processes.server_age(),
            active_requests=sum(model.running for model in models),
            models=[self._model(model) for model in models if model.queued or model.worker],
            process_bytes={"supervisor": memory_of("", os.getpid()), **processes},
            bus_drops=self._counters.lost(),
            internal_errors=self._counters.internal_errors,
            engines=engines,
            key_limits=self._key_limits(),
            short_names=self._short_names([*(model.name for model in models), *measured]),
            machine=self._machine(),
            loads=self._loads(),
            failed=self._failed(),
            ready=self._record.ready,
            drained=self._record.drained,
            key_expiries=self._key_expiries(),
            nodes=self._nodes.several(),
            batches=self._batches(),
        )

    def _short_names(self, models: Iterable[str]) -> dict[str, str]:
        entries = (self._known(name) for name in models)
        return {entry.name: entry.short_name for entry in entries if entry is not None}

    def _model(self, model: ModelView) -> ModelSnapshot:
        facts, memory_of = model.facts, self._processes.resident_bytes
        if not model.serves or facts is None:
            return ModelSnapshot(model.name, loaded=False, queued=model.queued)
        engines = [each for each in model.replicas if each.serves]
        return ModelSnapshot(
            model.name,
            loaded=True,
            queued=model.queued,
            slots=sum(each.facts.slots for each in engines if each.facts is not None) or facts.slots,
            slots_busy=model.busy,
            parameters=facts.parameters,
            context=facts.context,
            gpu_layers=facts.gpu_layers,
            worker_bytes=memory_of(model.worker, self._processes.pid(model.worker)),
            engine_bytes=memory_of(model.worker, facts.engine_pid),
            node=self._nodes.node_of(model.worker),
            replicas=[
                ReplicaMemory(
                    each.number,
                    memory_of(each.worker, self._processes.pid(each.worker)),
                    memory_of(each.worker, each.facts.engine_pid),
                    self._nodes.node_of(each.worker),
                )
                for each in engines
                if each.facts is not None
            ],
        )


class MetricsCalls:
    """Takes these messages: counts in ``metrics``, and collects from other processes with ``collections``."""

    def __init__(
        self,
        settings: Settings,
        peers: PeerRegistry,
        view: SchedulerView,
        metrics: ServerMetrics,
        accounting: Accounting,
        collections: MetricsCollections,
        snapshots: ServerSnapshots,
        disks: DiskSpaces,
        calls: GatewayCalls,
    ) -> None:
        self._disks = disks
        self._settings, self._peers, self._view, self._metrics = settings, peers, view, metrics
        self._accounting = accounting
        self._collections, self._snapshots, self._calls = collections, snapshots, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {RequestsObserved: self._observed, MetricsCollected: self._collected, GetMetrics: self._get}

    def _observed(self, peer: str, message: RequestsObserved, _payload: bytes) -> None:
        """Add what a gateway has counted."""
        self._accounting.requests_observed(peer, message)

    def _collected(self, peer: str, message: MetricsCollected, payload: bytes) -> None:
        """Take the answer of a gateway or a worker."""
        self._collections.answered(peer, message.number, None if message.late else payload)

    def _get(self, peer: str, call: GetMetrics, _payload: bytes) -> None:
        """Answer with all metrics as text once all processes have reported, or the time is over."""
        workers = {
            each.worker: (model.name, each.number)
            for model in self._view.models()
            for each in model.replicas
            if each.serves
        }
        workers |= {
            model.worker: (model.name, 0) for model in self._view.models() if model.serves and not model.replicas
        }
        self._disks.refresh()

        def answer(answers: dict[str, bytes]) -> None:
            # The library imports an HTTP server and TLS, a tenth of all that a supervisor imports, so only scraped servers
            # import it.
            from supervisor.metrics import exposition  # noqa: PLC0415

            engines = [EngineMetrics(of, answers.get(worker), number) for worker, (of, number) in workers.items()]
            answered = [engine for engine in engines if engine.text != b""]
            now = self._snapshots.take(answered, self._metrics.average_speeds())
            with_mullama = call.mullama or self._settings.mullama_metrics
            text = exposition.render(self._metrics, now, with_mullama=with_mullama, models=call.models)
            self._accounting.checkpoint()  # a counter that was shown must not fall when this supervisor dies
            self._calls.answer(peer, call.number, text)

        self._collections.collect([*self._peers.of("gateway"), *workers], answer)
