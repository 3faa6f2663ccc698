"""The components that handlers, recovery and reload are given: made here, in the order in which they need each other."""

from __future__ import annotations

from protocol import ids
from protocol.config.settings import Settings
from protocol.ids import RequestKey
from protocol.messages.work import KeyUsage, RateLimits
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.bus.grant_notices import GrantNotices
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.handlers.model_targets import ModelTargets
from supervisor.handlers.models.downloads import Downloads
from supervisor.internal_errors import InternalErrors
from supervisor.limits.key_admission import KeyAdmission
from supervisor.machine import hardware
from supervisor.metrics.latest_stats import LatestStats
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.models import compatibility
from supervisor.models.download_registry import DownloadRegistry
from supervisor.models.options.model_configuration import ConfiguredPolicies
from supervisor.models.registry import ModelRegistry
from supervisor.processes.fingerprints import gateway_fingerprint, worker_fingerprint
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.processes.local_placement import LocalPlacement
from supervisor.processes.worker_processes import WorkerProcesses
from supervisor.responses.journaled_store import JournaledStore
from supervisor.responses.response_store import StoreLimits
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.effect_executor import EffectExecutor
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.runtime.jobs import Jobs
from supervisor.runtime.key_file_watch import KeyFileWatch
from supervisor.runtime.messages import Messages
from supervisor.runtime.retained_log import RetainedLog
from supervisor.runtime.scheduler_limits import scheduler_limits
from supervisor.runtime.state_writer import StateWriter
from supervisor.scheduler.scheduler import Scheduler


class Components:
    """Only this folder has them all."""

    def __init__(self, settings: Settings, process_context: ProcessContext, loop: Loop, listen_fd: int) -> None:
        """Open the bus; start no process yet. Raises OSError if the sockets of the bus cannot be made."""
        self.settings, self.process_context, self.loop, self.listen_fd = settings, process_context, loop, listen_fd
        self.errors = InternalErrors()
        self.state_writer = StateWriter(loop)
        self.machine = hardware.read_machine(settings.machine_dir)
        self.models = ModelRegistry(settings, self.state_writer.finish, compatibility.capacity_of(self.machine))
        self.key_file = KeyFileWatch(loop, settings)
        self.retained_log = RetainedLog(process_context.boot, settings.log_retained)
        self.peers = PeerRegistry(settings.peer_silence)
        self.download_registry = DownloadRegistry()
        self.responses = JournaledStore(
            StoreLimits(settings.response_store_entries, settings.response_store_bytes, settings.response_store_ttl)
        )
        self.metrics = ServerMetrics()
        self.stats = LatestStats()
        self.placement = LocalPlacement(loop, process_context)
        self.processes = self.placement.processes
        self.bus = SupervisorBus(loop, process_context.runtime, process_context.boot)
        self.barrier = WorkerBarrier(loop, self.bus)
        self.grant_notices = GrantNotices(loop, self.bus)
        self.calls = GatewayCalls(self.bus, self.peers, self.state_writer)
        self.jobs = Jobs(loop, self.placement, self.peers, self.bus, self.barrier)
        self.workers = WorkerProcesses(self.placement, process_context, worker_fingerprint(settings))
        self.gateway = GatewayProcess(loop, self.processes, self.peers, listen_fd, gateway_fingerprint(settings))
        self._make_scheduler()

    def _make_scheduler(self) -> None:
        """Make the scheduler, with what sends it events and carries out its decisions."""
        self.scheduler = Scheduler(
            scheduler_limits(self.settings),
            lambda: ids.peer_id("worker"),
            self.metrics,
            ConfiguredPolicies(self.models.configuration, self.models.known),
        )
        self.gateway.closing = lambda: self.scheduler.view.closing
        self.targets = ModelTargets(self.models, self.scheduler.view)
        self.internal_calls = InternalCalls(self.loop, self.scheduler)
        self.effects = EffectExecutor(
            loop=self.loop,
            bus=self.bus,
            workers=self.workers,
            models=self.models,
            grant_notices=self.grant_notices,
            internal_calls=self.internal_calls,
            errors=self.errors,
            answer=self.calls.answer,
            barrier=self.barrier,
            fetch=self._fetch,
        )
        self.decisions = Decisions(self.loop, self.scheduler, self.models, self.effects, self.errors)
        self.messages = Messages(
            loop=self.loop,
            bus=self.bus,
            peers=self.peers,
            scheduler=self.scheduler,
            decisions=self.decisions,
            errors=self.errors,
        )
        self.admission = KeyAdmission(
            loop=self.loop,
            barrier=self.barrier,
            scheduler=self.scheduler,
            errors=self.errors,
            report=self._report_usage,
            resumed=self.decisions.reconcile_unless_settled,
        )
        self.downloads = Downloads(
            settings=self.settings,
            loop=self.loop,
            registry=self.download_registry,
            models=self.models,
            targets=self.targets,
            scheduler=self.scheduler,
            decisions=self.decisions,
            jobs=self.jobs,
            calls=self.calls,
            errors=self.errors,
        )

    def kill_process(self, name: str) -> None:
        """Kill the process of this name, if it still runs. Everything else follows from its end."""
        self.placement.kill(name)
        self.gateway.kill(name)

    def _fetch(self, model: str) -> None:
        """Download a model that requests wait for. The downloads are made later than what carries out effects."""
        self.downloads.fetch_for_scheduler(model)

    def _report_usage(self, key: RequestKey, limits: RateLimits) -> None:
        """Tell a gateway the remaining limits of a request's key."""
        self.bus.send(key.gateway, KeyUsage(key.number, key.attempt, limits))
