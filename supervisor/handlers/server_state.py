"""Calls about the server as a whole: its health, its latest figures and its log; and the end of a call whose client hung up."""

from __future__ import annotations

import math
import os
import time

from protocol import RELEASE
from protocol.config.api_keys import model_allowed
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.calls import AbandonCall
from protocol.messages.health import (
    GetHealth,
    GetStats,
    HealthReport,
    RunningModel,
    StatsReport,
)
from protocol.messages.log_stream import FollowLogs
from protocol.models.devices import GPUS
from protocol.models.recipes import ModelSpec, ModelType
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.internal_errors import InternalErrors
from supervisor.limits.key_admission import KeyAdmission
from supervisor.metrics.latest_stats import LatestStats
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.models import compatibility
from supervisor.models.download_registry import DownloadRegistry
from supervisor.models.registry import ModelRegistry
from supervisor.peers.other_versions import OtherVersions
from supervisor.processes.placement import ProcessFigures
from supervisor.responses.journaled_store import JournaledStore
from supervisor.responses.response_store import Owner
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.key_file_watch import KeyFileWatch
from supervisor.runtime.logbook import LogBook
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.scheduler import Scheduler
from supervisor.scheduler.view import ModelView, SchedulerView


class AbandonedCalls:
    """Forgets a call whose client hung up, everywhere that a call may wait."""

    def __init__(
        self,
        scheduler: Scheduler,
        admission: KeyAdmission,
        downloads: DownloadRegistry,
        responses: JournaledStore,
        logbook: LogBook,
    ) -> None:
        self._scheduler, self._admission, self._downloads = scheduler, admission, downloads
        self._responses, self._logbook = responses, logbook

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {AbandonCall: self._abandoned}

    def _abandoned(self, peer: str, call: AbandonCall, _payload: bytes) -> None:
        self._scheduler.call_abandoned(peer, call.number)
        self._downloads.forget(peer, call.number)
        self._logbook.forget(peer, call.number)
        self._responses.call_abandoned(Owner(peer, call.number))
        self._admission.cancelled(RequestKey(peer, call.number, 0))


class HealthReports:
    """Answers with the state of the whole server."""

    def __init__(
        self,
        settings: Settings,
        process_context: ProcessContext,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        processes: ProcessFigures,
        models: ModelRegistry,
        key_file: KeyFileWatch,
        downloads: DownloadRegistry,
        other_versions: OtherVersions,
        view: SchedulerView,
        metrics: ServerMetrics,
        calls: GatewayCalls,
        errors: InternalErrors,
    ) -> None:
        """Report what these know."""
        self._settings, self._process_context, self._loop, self._bus = settings, process_context, loop, bus
        self._peers, self._processes, self._models, self._key_file = peers, processes, models, key_file
        self._downloads, self._other_versions = downloads, other_versions
        self._view, self._metrics, self._calls, self._errors = view, metrics, calls, errors
        self._started_at = loop.now()

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {GetHealth: self._get}

    def _get(self, peer: str, call: GetHealth, _payload: bytes) -> None:
        now = self._loop.now()
        models = self._view.models()
        default = self._models.known(self._models.user_aliases.default)
        report = HealthReport(
            status="draining" if self._view.closing else "ok",
            version=RELEASE,
            boot=self._process_context.boot,
            pid=os.getpid(),
            uptime=self._processes.server_age(),
            models=[self._running_model(each, each.spec) for each in models if each.counts_as_loaded and each.spec],
            max_models={kind.value: self._settings.max_loaded_models for kind in ModelType},
            granted=self._view.busy,
            queued=self._view.queued,
            troubled=self._view.failed_models(now),
            downloads=self._downloads.running(),
            peers=self._peers.all(),
            problems=[
                *([self._view.spawn_problem.message] if self._view.spawn_problem else []),
                *self._key_file.problems,
                *self._models.unknown_in_configuration(),
            ],
            former_models=self._other_versions.models,
            counters={
                **self._view.counters,
                "requests_total": int(self._metrics.inference_requests.total),
                "bus_malformed": self._bus.malformed,
                "bus_undeliverable": self._bus.undeliverable,
                "internal_errors": self._errors.count + self._loop.errors,
            },
            default_model=default.name if default is not None else "",
            default_alias=default.short_name if default is not None else "",
            ipc_endpoint=endpoints.bus(self._process_context.runtime),
            gpu_available=not self._models.machine.devices.isdisjoint(GPUS),
            memory_used=sum(model.memory for model in models if model.counts_as_loaded),
            memory_total=compatibility.default_capacity().memory,
        )
        self._calls.answer(peer, call.number, report)

    def _running_model(self, model: ModelView, spec: ModelSpec) -> RunningModel:
        facts = model.facts
        now = self._loop.now()
        last_use = self._started_at if model.last_use is None else model.last_use
        unused_s = 0.0 if model.running else now - last_use
        expires_at = model.expires_at
        return RunningModel(
            spec=spec,
            worker=model.worker,
            state=model.state.value,
            worker_pid=self._processes.pid(model.worker),
            last_use=math.floor((time.time() - unused_s) * 1000) / 1000,
            slots=model.slots or (facts.slots if facts else 0),
            context=facts.context if facts else 0,
            granted=model.busy,
            queued=model.queued,
            queue=self._view.queue_shares(model.name),
            engine_pid=facts.engine_pid if facts else 0,
            backend_url=facts.backend_url if facts else "",
            load_seconds=facts.seconds if facts else 0.0,
            parameters=facts.parameters if facts else 0,
            gpu_layers=facts.gpu_layers if facts else 0,
            restored_tokens=facts.restored_tokens if facts else 0,
            progress=self._view.progress(model.name),
            command=facts.command if facts else [],
            is_busy=bool(model.running or model.queued) or model.state is not ModelState.READY,
            pinned=model.pinned,
            ttl=model.ttl,
            expires_at=0.0 if expires_at is None else round(time.time() + expires_at - now, 3),
        )


class StatsCalls:
    """Answers with the figures of the last finished request, once its worker has reported them."""

    def __init__(
        self,
        models: ModelRegistry,
        view: SchedulerView,
        stats: LatestStats,
        barrier: WorkerBarrier,
        calls: GatewayCalls,
    ) -> None:
        self._models, self._view, self._stats, self._barrier, self._calls = models, view, stats, barrier, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {GetStats: self._get}

    def _get(self, peer: str, call: GetStats, _payload: bytes) -> None:
        name = self._models.resolve(call.model, call.models).name if call.model else ""
        if name and not model_allowed(call.models, name):
            raise Failure(
                Code.MODEL_NOT_FOUND, f"Model {call.model} not found", model=call.model, param="model"
            ).raised()

        def shown(model: str) -> bool:
            return name in ("", model) and model_allowed(call.models, model)

        def answer() -> None:
            self._calls.answer(peer, call.number, self._stats.latest(shown) or StatsReport(name))

        # A request whose end was not reported has a grant.
        models = self._view.models()
        busy = [each.worker for each in models if each.busy and each.worker and shown(each.name)]
        self._barrier.wait(busy, answer)


class LogReaders:
    """Answers with the retained entries of the log, then sends new ones."""

    def __init__(self, logbook: LogBook, calls: GatewayCalls) -> None:
        self._logbook, self._calls = logbook, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {FollowLogs: self._follow}

    def _follow(self, peer: str, call: FollowLogs, _payload: bytes) -> None:
        self._calls.answer(peer, call.number, self._logbook.snapshot(call))
        self._logbook.follow(peer, call)
