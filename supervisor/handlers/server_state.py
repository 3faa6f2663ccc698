"""Calls about the server as a whole: its health, its latest figures and its log; and the end of a call whose client hung up."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec.structs import replace

from protocol import RELEASE
from protocol.config.api_keys import model_allowed
from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.calls import AbandonCall
from protocol.messages.health import (
    FailedModel,
    GetHealth,
    GetStats,
    HealthReport,
    ModelProblem,
    RunningModel,
    StatsReport,
)
from protocol.messages.log_stream import FollowLogs
from protocol.messages.peers import Peer
from protocol.models.devices import DEVICE_NAMES, GPUS, Device
from protocol.models.memory import Capacity
from protocol.models.recipes import ModelSpec, ModelType, with_backend
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.handlers.replica_reports import replica_reports
from supervisor.handlers.reported_nodes import ReportedNodes
from supervisor.limits.key_admission import KeyAdmission
from supervisor.machine.disk_space import DiskSpaces
from supervisor.metrics.latest_stats import LatestStats
from supervisor.models.download_registry import DownloadRegistry
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.processes.placement import ProcessFigures
from supervisor.responses.journaled_store import JournaledStore
from supervisor.responses.response_store import Owner
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.retained_log import RetainedLog
from supervisor.runtime.server_counters import ServerCounters
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.scheduler import Scheduler
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import ModelView


class AbandonedCalls:
    """Forgets a call whose client hung up, everywhere that a call may wait."""

    def __init__(
        self,
        scheduler: Scheduler,
        admission: KeyAdmission,
        downloads: DownloadRegistry,
        responses: JournaledStore,
        retained_log: RetainedLog,
    ) -> None:
        self._scheduler, self._admission, self._downloads = scheduler, admission, downloads
        self._responses, self._retained_log = responses, retained_log

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {AbandonCall: self._abandoned}

    def _abandoned(self, peer: str, call: AbandonCall, _payload: bytes) -> None:
        self._scheduler.call_abandoned(peer, call.number)
        self._downloads.forget(peer, call.number)
        self._retained_log.forget(peer, call.number)
        self._responses.call_abandoned(Owner(peer, call.number))
        self._admission.cancelled(RequestKey(peer, call.number, 0))


class HealthReports:
    """Answers with the state of the whole server."""

    def __init__(
        self,
        process_context: ProcessContext,
        loop: Loop,
        max_loaded_models: int,
        models: ModelRegistry,
        view: SchedulerView,
        processes: ProcessFigures,
        counters: ServerCounters,
        record: ServerRecord,
        peers: Callable[[], list[Peer]],
        downloads: Callable[[], list[str]],
        former_models: Callable[[], list[str]],
        problems: Callable[[], list[str]],
        memory: Callable[[], list[Capacity]],
        held_on_devices: Callable[[str], Mapping[str, int]],
        disks: DiskSpaces,
        nodes: ReportedNodes,
        calls: GatewayCalls,
    ) -> None:
        """The functions return what is there now: processes on the bus, downloads, models of a former release, problems, memory.

        ``held_on_devices`` returns place → bytes that the engine of a worker holds there.
        """
        self._memory, self._held_on_devices, self._disks = memory, held_on_devices, disks
        self._process_context, self._loop, self._max_loaded_models = process_context, loop, max_loaded_models
        self._models, self._view, self._processes, self._counters = models, view, processes, counters
        self._record = record
        self._peers, self._downloads, self._former_models = peers, downloads, former_models
        self._problems, self._nodes, self._calls = problems, nodes, calls
        self._started_at = loop.now()

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {GetHealth: self._get}

    def _get(self, peer: str, call: GetHealth, _payload: bytes) -> None:
        now = self._loop.now()
        models = self._view.models()
        troubled = self._view.failed_models(now)
        lost = self._counters.lost()
        memory = self._memory()
        default = self._models.known(self._models.user_aliases.default)
        report = HealthReport(
            status="draining" if self._view.closing else "drained" if self._record.drained else "ok",
            version=RELEASE,
            boot=self._process_context.boot,
            pid=os.getpid(),
            uptime=self._processes.server_age(),
            models=[self._running_model(each, each.spec) for each in models if each.counts_as_loaded and each.spec],
            max_models={kind.value: self._max_loaded_models for kind in ModelType},
            granted=self._view.busy,
            queued=self._view.queued,
            loads=self._view.loads(now),
            troubled=troubled,
            deaths=self._record.deaths,
            downloads=self._downloads(),
            peers=self._peers(),
            problems=[
                *([self._view.spawn_problem.message] if self._view.spawn_problem else []),
                *self._problems(),
            ],
            model_problems=configured_problems(self._configured(), troubled, self._record.failed_at_start),
            drained=self._record.drained,
            former_models=self._former_models(),
            counters={
                **self._view.counters,
                "requests_total": self._counters.requests,
                "bus_malformed": lost["malformed"],
                "bus_undeliverable": lost["undeliverable"],
                "internal_errors": self._counters.internal_errors,
            },
            default_model=default.name if default is not None else "",
            default_alias=default.short_name if default is not None else "",
            ipc_endpoint=endpoints.bus(self._process_context.runtime),
            gpu_available=not self._models.machine.devices.isdisjoint(GPUS),
            memory_used=sum(model.memory for model in models if model.counts_as_loaded),
            memory_total=memory[0].total,
            memory=memory,
            disks=self._disks.known(),
            nodes=self._nodes.several(),
        )
        self._disks.refresh()
        self._calls.answer(peer, call.number, report)

    def _configured(self) -> set[str]:
        """Return the models that the configuration names, by their registered names where they are known."""
        entries = {name: self._models.known(name) for name in self._models.configuration.named}
        return {entry.name if entry is not None else name for name, entry in entries.items()}

    def _running_model(self, model: ModelView, spec: ModelSpec) -> RunningModel:
        facts = model.facts
        now = self._loop.now()
        last_use = self._started_at if model.last_use is None else model.last_use
        unused_s = 0.0 if model.running else now - last_use
        expires_at = model.expires_at
        return RunningModel(
            spec=with_device(with_backend(spec, model.backend), on_gpu=bool(self._held_on_devices(model.worker))),
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
            node=self._nodes.node_of(model.worker),
            replicas=replica_reports(model, self._processes.pid, self._nodes.node_of),
            is_busy=bool(model.running or model.queued) or model.state is not ModelState.READY,
            pinned=model.pinned,
            ttl=model.ttl,
            expires_at=0.0 if expires_at is None else round(time.time() + expires_at - now, 3),
        )


def with_device(spec: ModelSpec, *, on_gpu: bool) -> ModelSpec:
    """Return a loaded model's spec with the device that its driver shows, if its program was not known to use one. Pure."""
    if not on_gpu or spec.device != Device.CPU:
        return spec
    return replace(spec, device=DEVICE_NAMES[Device.NVIDIA_GPU].shown)


def configured_problems(
    configured: Collection[str], troubled: Iterable[FailedModel], failed_at_start: Mapping[str, Failure]
) -> list[ModelProblem]:
    """Return a line for each model that the configuration names and that cannot be loaded. Pure.

    ``failed_at_start``: why models could not be loaded at the start, if they have not been loaded since. A name that
    means no model is another problem.
    """
    unknown = Code.MODEL_NOT_FOUND
    failed_at_start = {
        name: why for name, why in failed_at_start.items() if name in configured and why.code is not unknown
    }
    lines = {
        name: f"Model {name} could not be loaded at the start: {why.message}" for name, why in failed_at_start.items()
    }
    for each in troubled:
        if each.model in configured:
            when = f"in {each.retry_in:.0f} s" if each.retry_in else "with the next request"
            lines[each.model] = f"Model {each.model} has failed, and is tried again {when}: {each.failure.message}"
    return [ModelProblem(name, text) for name, text in lines.items()]


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
        busy = [worker for each in models if each.busy and shown(each.name) for worker in each.workers]
        self._barrier.wait(busy, answer)


class LogReaders:
    """Answers with the retained entries of the log, then sends new ones."""

    def __init__(self, retained_log: RetainedLog, calls: GatewayCalls) -> None:
        self._retained_log, self._calls = retained_log, calls

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {FollowLogs: self._follow}

    def _follow(self, peer: str, call: FollowLogs, _payload: bytes) -> None:
        self._calls.answer(peer, call.number, self._retained_log.snapshot(call))
        self._retained_log.follow(peer, call)
