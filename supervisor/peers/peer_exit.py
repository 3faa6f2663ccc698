"""What follows from the end of a gateway or a worker: everything about it is forgotten, and others are told."""

from __future__ import annotations

from collections.abc import Callable

from protocol.failures import Code, Failure
from protocol.messages.peers import WorkerGone
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.grant_notices import GrantNotices
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.limits.key_admission import KeyAdmission
from supervisor.models.download_registry import DownloadRegistry
from supervisor.peers.other_versions import OtherVersions
from supervisor.processes.placement import LostWithNode
from supervisor.responses.journaled_store import JournaledStore
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.messages import Messages
from supervisor.runtime.retained_log import RetainedLog
from supervisor.scheduler.scheduler import Scheduler

log = logs.get_logger()


class GatewayEnds:
    """The ends of gateways."""

    def __init__(
        self,
        bus: SupervisorBus,
        barrier: WorkerBarrier,
        peers: PeerRegistry,
        is_planned: Callable[[str], bool],
        scheduler: Scheduler,
        decisions: Decisions,
        admission: KeyAdmission,
        downloads: DownloadRegistry,
        responses: JournaledStore,
        retained_log: RetainedLog,
        remove_files: Callable[[str], None],
    ) -> None:
        """``remove_files`` removes what a gateway has left on the disk."""
        self._bus, self._barrier, self._remove_files = bus, barrier, remove_files
        self._peers, self._is_planned = peers, is_planned
        self._scheduler, self._decisions, self._admission = scheduler, decisions, admission
        self._downloads, self._responses, self._retained_log = downloads, responses, retained_log

    def gone(self, gateway: str) -> None:
        """Forget a gateway that has ended, with everything that waits for it."""
        known = self._peers.remove(gateway)
        self._bus.forget(gateway)
        self._barrier.forget(gateway)
        self._retained_log.forget_peer(gateway)
        self._downloads.forget(gateway)
        self._responses.gateway_gone(gateway)
        self._admission.gateway_gone(gateway)
        self._scheduler.gateway_gone(gateway)
        self._remove_files(gateway)
        planned = self._scheduler.view.closing or self._is_planned(gateway)
        pid = known.pid if known else 0
        (log.info if planned else log.warning)("gateway worker gone", gateway=gateway, gateway_pid=pid)
        self._decisions.reconcile()


class WorkerEnds:
    """The ends of workers."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        barrier: WorkerBarrier,
        peers: PeerRegistry,
        scheduler: Scheduler,
        decisions: Decisions,
        messages: Messages,
        grant_notices: GrantNotices,
        other_versions: OtherVersions,
    ) -> None:
        self._loop, self._bus, self._barrier = loop, bus, barrier
        self._peers, self._scheduler, self._decisions = peers, scheduler, decisions
        self._messages, self._grant_notices, self._other_versions = messages, grant_notices, other_versions

    def gone(self, worker: str, why: str) -> None:
        """Forget a worker that has ended, and tell the gateways."""
        if self._messages.transition is not None:
            self._messages.transition.worker_ended(worker)
        self._peers.remove(worker)
        self._bus.forget(worker)
        self._barrier.forget(worker)
        known = self._scheduler.view.worker(worker)
        model = known.model if known is not None else ""
        # At the end of the grace period a worker ends as it was told to, together with its model.
        asked_to_end = self._scheduler.view.closing and (not model or why == "exit 0")
        expected = known is None or known.is_stopping or asked_to_end
        context = {"model": model} if model else {}
        if known is not None and known.node != HEAD:
            context["node"] = known.node
        (log.info if expected else log.error)("worker gone", worker=worker, **context, reason=str(why))
        worker_name = f"The worker of model {model}" if model else "A worker without a model"
        failure = Failure(Code.WORKER_GONE, f"{worker_name} is gone ({why})", model=model)
        if isinstance(why, LostWithNode):
            text = f"{worker_name} is gone, because {why}; repeat the request: it may run on another node"
            failure = Failure(Code.NODE_LOST, text, model=model)
        self._grant_notices.send()
        for gateway in self._peers.of("gateway"):
            self._bus.send(gateway, WorkerGone(worker, failure))
        try:
            self._scheduler.worker_gone(worker, failure, self._loop.now())
        finally:
            self._other_versions.worker_ended(worker)
            self._decisions.reconcile()
