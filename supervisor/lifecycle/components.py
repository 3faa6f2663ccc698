"""The components that handlers, recovery and reload are given: made here, in the order in which they need each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from protocol import ids
from protocol.config.settings import Settings
from protocol.ids import RequestKey
from protocol.messages.caller import KeyUsage, RateLimits
from protocol.models.checkpoints import hub_cache
from protocol.models.nodes import HEAD, NodeFacts
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire.bus_address import ClusterKeys
from supervisor.bus.grant_notices import GrantNotices
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.handlers.model_targets import ModelTargets
from supervisor.handlers.models.download_outcomes import DownloadOutcomes
from supervisor.handlers.models.downloads import Downloads
from supervisor.handlers.models.remote_lists import RemoteLists
from supervisor.internal_errors import InternalErrors
from supervisor.lifecycle import startup
from supervisor.lifecycle.remote_nodes import RemoteNodes
from supervisor.limits.key_admission import KeyAdmission
from supervisor.limits.rate_limiter import RateLimiter
from supervisor.limits.token_budgets import TokenBudgets
from supervisor.machine import hardware, pci
from supervisor.machine.device_measurements import DeviceMeasurements
from supervisor.machine.device_readings import DeviceReadings
from supervisor.machine.disk_space import DiskSpaces
from supervisor.machine.held_memory import HeldMemory
from supervisor.machine.host_memory import host_capacity
from supervisor.machine.memory_reader import MachineMemory, MemoryReader
from supervisor.metrics.latest_stats import LatestStats
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.models import compatibility
from supervisor.models.download_registry import DownloadRegistry
from supervisor.models.options.model_configuration import ConfiguredPolicies
from supervisor.models.registry import ModelRegistry
from supervisor.overview.running_tokens import RunningTokens
from supervisor.persistence.server_record import ServerRecord
from supervisor.persistence.state_writer import StateWriter
from supervisor.processes.fingerprints import gateway_fingerprint, worker_fingerprint
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.processes.keeper_children import KeeperChild
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
from supervisor.runtime.server_counters import ServerCounters
from supervisor.scheduler.scheduler import Scheduler
from supervisor.usage import store
from supervisor.usage.accounting import Accounting
from supervisor.usage.usage_writer import UsageWriter

if TYPE_CHECKING:
    from supervisor.lifecycle.cluster import Cluster

_MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""What a message of another node may have besides the body of a request."""


class Components:
    """Only this folder has them all."""

    def __init__(self, settings: Settings, process_context: ProcessContext, loop: Loop, listen_fd: int) -> None:
        """Open the bus; start no process yet. Raises :class:`BindError`, or the failure of :func:`startup.cluster_keys`."""
        self.settings, self.process_context, self.loop, self.listen_fd = settings, process_context, loop, listen_fd
        self.errors = InternalErrors()
        self.resumed = False
        """Whether what is taken over was left by another server, whose head has died."""
        self.state_writer = StateWriter(loop)
        self.machine = hardware.read_machine(settings.machine_dir)
        allowed = host_capacity(Path(settings.machine_dir)).total
        usable = structs.replace(self.machine, memory=min(self.machine.memory, allowed or self.machine.memory))
        self.models = ModelRegistry(settings, self.state_writer.finish, compatibility.capacity_of(usable))
        self.key_file = KeyFileWatch(loop, settings)
        self.retained_log = RetainedLog(process_context.boot, settings.log_retained)
        self.peers = PeerRegistry(settings.peer_silence)
        self.responses = JournaledStore(
            StoreLimits(settings.response_store_entries, settings.response_store_bytes, settings.response_store_ttl)
        )
        self.record = ServerRecord()
        self.download_registry = DownloadRegistry(lambda: self.record.paused_downloads)
        self.metrics = ServerMetrics(settings.metrics_models)
        self.running_tokens = RunningTokens(self.metrics.recent.produced)
        self.stats = LatestStats()
        self.local = LocalPlacement(loop, process_context)
        self.processes = self.local.processes
        self.cluster_keys = startup.cluster_keys(settings, process_context.runtime)
        longest = max(settings.body_limit, settings.body_memory) + _MESSAGE_BYTES
        self.bus = SupervisorBus(loop, process_context.bus, process_context.boot, self.cluster_keys, longest)
        threads, devices = self.machine.cpu.threads, [device.value for device in self.machine.devices]
        head, keys = NodeFacts(HEAD, cpus=threads, devices=devices, memory=usable.memory), self.cluster_keys
        self.nodes = RemoteNodes(self.local, head) if keys is None else self._make_cluster(head, keys)
        self.placement = self.nodes.placement
        self.counters = ServerCounters(loop, self.bus, self.errors, self.metrics, self.retained_log)
        self.limits, self.budgets = RateLimiter(), TokenBudgets()
        self.accounting = Accounting(
            loop=loop,
            metrics=self.metrics,
            counters=self.counters,
            limits=self.limits,
            budgets=self.budgets,
            registered=self._registered,
        )
        usage_store = store.UsageStore(Path(settings.state_dir) / store.FILE, settings.usage_retention_days)
        self.usage_writer = UsageWriter(loop, usage_store, self.accounting)
        self.barrier = WorkerBarrier(loop, self.bus)
        self.grant_notices = GrantNotices(loop, self.bus)
        self.calls = GatewayCalls(self.bus, self.peers, self.state_writer)
        self.jobs = Jobs(loop, self.placement, self.peers, self.bus, self.barrier)
        self.workers = WorkerProcesses(self.placement, process_context, worker_fingerprint(settings))
        self.gateway = GatewayProcess(loop, self.processes, self.peers, listen_fd, gateway_fingerprint(settings))
        self.devices = DeviceReadings(
            loop=loop,
            jobs=self.jobs,
            bus=self.bus,
            machine=self.machine,
            drivers=pci.graphics_drivers(Path(settings.machine_dir)),
            workers=lambda: [self.local.pid(worker) for worker in self.workers.names()],
            closing=lambda: self.scheduler.view.closing,
            elsewhere=self.nodes.devices_read,
        )
        self.held = HeldMemory(self.devices, self.placement, self.nodes.held_on_devices)
        directories = {"cache": Path(settings.cache_dir), "models": hub_cache(), "state": Path(settings.state_dir)}
        self.disks = DiskSpaces(loop, directories)
        self.memory = MachineMemory(settings.machine_dir, self.devices.capacities)
        self._make_scheduler()

    def _make_scheduler(self) -> None:
        """Make the scheduler, with what sends it events and carries out its decisions."""
        self.scheduler = Scheduler(
            scheduler_limits(self.settings),
            lambda: ids.peer_id("worker"),
            self.metrics,
            ConfiguredPolicies(self.models.configuration, self.models.known),
            self.nodes.node_files,
        )
        self.metrics.keep_series_while(lambda model: self.scheduler.view.serving(model) is not None)
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
            record=self.record,
            fetch=self._fetch,
            with_devices=self.devices.for_engines,
            nodes=self.nodes,
        )
        measurements = DeviceMeasurements(self.scheduler.view, self.models.measured, self.held.on_devices)
        self.devices.on_read = lambda asked_at: measurements.devices_read(asked_at, self.loop.now())
        reader = MemoryReader(self.memory, self.devices, self.held.all, self.scheduler, self.nodes.read_memory)
        self.decisions = Decisions(
            loop=self.loop,
            scheduler=self.scheduler,
            models=self.models,
            read_memory=reader.read_if_wanted,
            executor=self.effects,
            errors=self.errors,
        )
        reader.on_read = self.decisions.reconcile
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
            limits=self.limits,
            budgets=self.budgets,
            report=self._report_usage,
            remember=self.accounting.limits_changed,
            resumed=self.decisions.reconcile_unless_settled,
        )
        outcomes = DownloadOutcomes(
            cache_dir=self.settings.cache_dir,
            loop=self.loop,
            registry=self.download_registry,
            record=self.record,
            models=self.models,
            targets=self.targets,
            scheduler=self.scheduler,
            calls=self.calls,
            errors=self.errors,
        )
        self.downloads = Downloads(
            settings=self.settings,
            loop=self.loop,
            registry=self.download_registry,
            record=self.record,
            models=self.models,
            scheduler=self.scheduler,
            decisions=self.decisions,
            jobs=self.jobs,
            calls=self.calls,
            outcomes=outcomes,
        )
        self.remote_lists = RemoteLists(self.settings, self.loop, self.models, self.jobs)

    def _make_cluster(self, head: NodeFacts, keys: ClusterKeys) -> Cluster:
        from protocol.wire.peer_proof import proof_for  # noqa: PLC0415 - a server on one machine has none
        from supervisor.lifecycle.cluster import Cluster  # noqa: PLC0415

        prove = partial(proof_for, keys, self.process_context.boot)
        return Cluster(self.loop, self.bus, self.local, head, prove)

    def resume_nodes(self) -> bool:
        """Expect the agents of a server that has not ended in order; return whether there may be any."""
        agents = self.nodes.agents_of_last_run()
        if agents is not None:
            self.resumed = True
            self.record.set_agents(agents)
        return self.resumed

    def close(self, *, server_ends: bool) -> None:
        """Write what is to be written, and close the bus. ``server_ends``: no other supervisor follows."""
        self.state_writer.close()
        if server_ends:
            self.nodes.forget_run()
        self.usage_writer.close()
        self.bus.close()

    def adopt_gateways(self, masters: Sequence[KeeperChild], on_ended: Callable[[str], None]) -> list[str]:
        """Take over the gateways of an earlier supervisor; return their names. ``on_ended`` gets the name of each."""
        return [*self.gateway.adopt(masters, on_ended), *self.nodes.adopt_gateways(on_ended)]

    def gateway_end_is_planned(self, gateway: str) -> bool:
        """Return whether the end of a gateway is planned: it was replaced, or has said that it leaves."""
        return self.nodes.gateway_has_left(gateway) or self.gateway.is_replaced(gateway)

    def kill_process(self, name: str) -> None:
        """Kill the process of this name, if it still runs. Everything else follows from its end."""
        self.placement.kill(name)
        self.gateway.kill(name)
        self.nodes.given_up(name)

    def _registered(self, name: str) -> str:
        """Return the registered name of the model that a name means, empty if there is none."""
        entry = self.models.known(name)
        return entry.name if entry is not None else ""

    def _fetch(self, model: str) -> None:
        """Download a model that requests wait for. The downloads are made later than what carries out effects."""
        self.downloads.fetch_for_scheduler(model)

    def _report_usage(self, key: RequestKey, limits: RateLimits) -> None:
        """Tell a gateway the remaining limits of a request's key."""
        self.bus.send(key.gateway, KeyUsage(key.number, key.attempt, limits))
