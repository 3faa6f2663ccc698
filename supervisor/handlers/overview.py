"""Calls about the running server: the report, the history, and the cancellation of a request.

While no client asks, only a sample is taken every ten seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

import msgspec

from protocol import RELEASE
from protocol.failures import Code, Failure
from protocol.messages.model_overview import ModelOverview
from protocol.messages.overview import (
    MAX_REQUESTS,
    SAMPLE_INTERVAL_S,
    CancelRequest,
    GetHistory,
    GetOverview,
    HistoryReport,
    OverviewReport,
    ServerOverview,
)
from protocol.messages.work import Refused
from protocol.models.memory import Capacity
from protocol.models.recipes import with_backend
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.handlers.replica_reports import replica_reports
from supervisor.handlers.reported_nodes import ReportedNodes
from supervisor.handlers.server_state import with_device
from supervisor.machine.disk_space import DiskSpaces
from supervisor.metrics.recent_figures import RecentFigures
from supervisor.models.download_registry import DownloadRegistry
from supervisor.models.registry import ModelRegistry
from supervisor.overview.dates import Dates
from supervisor.overview.ended_requests import EndedRequests
from supervisor.overview.report import (
    ModelSources,
    disks_of,
    download_of,
    memory_of,
    model_overview,
    nodes_of,
    request_overview,
    used_memory,
)
from supervisor.overview.running_tokens import RunningTokens
from supervisor.persistence.server_record import ServerRecord
from supervisor.processes.placement import ProcessFigures
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import ModelView

log = logs.get_logger()

_CANCELLED = "an operator cancelled this request"


class OverviewCalls:
    """Answers these calls."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        calls: GatewayCalls,
        max_loaded_models: int,
        models: ModelRegistry,
        view: SchedulerView,
        processes: ProcessFigures,
        record: ServerRecord,
        figures: RecentFigures,
        tokens: RunningTokens,
        ended: EndedRequests,
        downloads: DownloadRegistry,
        problems: Callable[[], list[str]],
        memory: Callable[[], list[Capacity]],
        held_on_devices: Callable[[str], Mapping[str, int]],
        disks: DiskSpaces,
        nodes: ReportedNodes,
    ) -> None:
        """The functions return what is there now: problems, memory; whether a worker's engine holds memory of a GPU."""
        self._loop, self._bus, self._calls, self._max_loaded_models = loop, bus, calls, max_loaded_models
        self._models, self._view, self._processes, self._record = models, view, processes, record
        self._figures, self._tokens, self._ended = figures, tokens, ended
        self._downloads, self._problems = downloads, problems
        self._memory, self._held_on_devices, self._disks, self._nodes = memory, held_on_devices, disks, nodes
        self._dates = Dates()
        loop.every(SAMPLE_INTERVAL_S, self._take_sample)

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {GetOverview: self._get, GetHistory: self._history, CancelRequest: self._cancel}

    def _take_sample(self) -> None:
        self._tokens.keep_only({each.worker for each in self._view.workers()})
        memory = used_memory(self._memory())
        self._figures.take_sample(round(time.time(), 1), self._view.running, self._view.queued, memory)

    def _history(self, peer: str, call: GetHistory, _payload: bytes) -> None:
        self._calls.answer(peer, call.number, HistoryReport(SAMPLE_INTERVAL_S, self._figures.samples))

    def _get(self, peer: str, call: GetOverview, _payload: bytes) -> None:
        now = self._loop.now()
        self._dates.read(time.time(), now)
        self._disks.refresh()
        requests = self._view.requests_in_flight(MAX_REQUESTS)
        memory = self._memory()
        report = OverviewReport(
            time=self._dates.of(now),
            server=self._server(now),
            running=self._view.running,
            waiting=self._view.queued,
            memory=memory_of(memory),
            disks=disks_of(self._disks.known()),
            models=self._model_overviews(now),
            downloads={each.model: download_of(each) for each in self._downloads.reports(now)},
            requests={
                f"{each.key.gateway}:{each.key.number}": request_overview(
                    each, self._tokens.of(each.worker, each.key), self._dates
                )
                for each in requests
            },
            ended=self._ended.by_number,
            sample=self._figures.latest,
            nodes=nodes_of(self._nodes.several(), self._dates, now) or msgspec.UNSET,
        )
        self._calls.answer(peer, call.number, report)

    def _server(self, now: float) -> ServerOverview:
        default = self._models.known(self._models.user_aliases.default)
        return ServerOverview(
            version=RELEASE,
            state="draining" if self._view.closing else "drained" if self._record.drained else "ok",
            started_at=self._dates.server_started(now - self._processes.server_age()),
            max_models=self._max_loaded_models,
            pid=os.getpid(),
            default_model=default.name if default is not None else "",
            problems=self._problems(),
        )

    def _model_overviews(self, now: float) -> dict[str, ModelOverview]:
        """Return the models that have something to say, by their names."""
        loads = {each.model: each for each in self._view.loads(now) if not each.replica}
        failed = {each.model: each for each in self._view.failed_models(now)}
        deaths = self._record.deaths_by_model
        views = {each.name: each for each in self._view.models()}
        shown = {}
        for name in sorted(views.keys() | loads.keys() | failed.keys() | deaths.keys()):
            view = views.get(name)
            facts = ModelSources(view, loads.get(name), failed.get(name), deaths.get(name))
            if facts.is_shown:
                shown[name] = model_overview(self._with_figures(facts, view), self._dates, now)
        return shown

    def _with_figures(self, facts: ModelSources, view: ModelView | None) -> ModelSources:
        if view is None:
            return facts
        spec = view.spec
        return facts._replace(
            speed=self._figures.speed(view.name),
            shares=self._view.waiting_shares(view.name, MAX_REQUESTS) if view.queued else (),
            device=with_device(with_backend(spec, view.backend), on_gpu=bool(self._held_on_devices(view.worker))).device
            if spec is not None
            else "",
            worker_pid=self._processes.pid(view.worker) if view.worker else 0,
            node=self._nodes.node_of(view.worker),
            replicas=replica_reports(view, self._processes.pid, self._nodes.node_of),
        )

    def _cancel(self, peer: str, call: CancelRequest, _payload: bytes) -> None:
        """Refuse the attempt towards its gateway, which ends the request for its client and cancels the attempt here."""
        key = self._view.attempt_of(call.gateway, call.request)
        if key is None:
            reason = f"request {call.gateway}:{call.request} does not run or wait: it may have ended"
            raise Failure(Code.NOT_FOUND, reason, param="id").raised()
        log.info("request cancelled by an operator", gateway=key.gateway, number=key.number, by=call.by)
        self._bus.send(key.gateway, Refused(key.number, key.attempt, Failure(Code.OPERATOR_CANCELLED, _CANCELLED)))
        self._calls.answer(peer, call.number, None)
