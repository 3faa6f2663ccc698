"""The supervisor: connects its components and gives each what it needs.

A message, the end of a process or a timer comes in. A handler (:mod:`supervisor.handlers`) translates it into an event of
the scheduler, which decides what follows, as a list of effects (:mod:`supervisor.runtime.decisions`). An exception in a
handler, in the scheduler or in an effect fails that one step and is counted (:mod:`supervisor.internal_errors`).

What a component can touch is what its constructor takes. Only this folder knows the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from protocol.config.settings import Settings
from protocol.messages.model_files import StartPull
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.handlers.engine_reports import EngineReports
from supervisor.handlers.readiness import ReadinessCalls
from supervisor.handlers.requests import InferenceRequests
from supervisor.handlers.responses import ResponseCalls
from supervisor.handlers.server_state import AbandonedCalls
from supervisor.lifecycle import model_handlers, server_handlers
from supervisor.lifecycle.components import Components
from supervisor.lifecycle.peer_components import PeerComponents
from supervisor.lifecycle.preload import ModelPreload
from supervisor.lifecycle.runtime_directory_watch import RuntimeDirectoryWatch
from supervisor.lifecycle.shutdown import GracefulShutdown
from supervisor.machine.memory_pressure_watch import MemoryPressureWatch
from supervisor.processes import stale_files
from supervisor.processes.keeper_children import KeeperChild
from supervisor.recovery.taken_over_gateways import TakenOverGateways
from supervisor.recovery.taken_over_jobs import TakeOverJob
from supervisor.recovery.taken_over_workers import TakenOverWorkers
from supervisor.recovery.takeover import Takeover
from supervisor.reload.rolling_restart import RollingRestart
from supervisor.runtime.handler_table import Handler, merge_handlers

log = logs.get_logger()


class Supervisor:
    """All of the supervisor process."""

    def __init__(self, settings: Settings, process_context: ProcessContext, loop: Loop, listen_fd: int) -> None:
        """Open the bus; start no process yet. The caller holds the lock of the runtime directory and the listener.

        Raises OSError if the sockets of the bus cannot be made.
        """
        components = self.components = Components(settings, process_context, loop, listen_fd)
        logs.set_sink(self._logged)  # readers of the log also get what the start says
        sampling = model_handlers.sampling_defaults(components)
        self._peer_components = PeerComponents(components, sampling)
        about_the_machine, machine_jobs = server_handlers.machine_handlers(components)
        pulls: dict[type, TakeOverJob] = {StartPull: components.downloads.take_over}
        self._job_kinds = {**pulls, **machine_jobs, **components.nodes.job_kinds()}
        """Type of an order → what takes over an earlier supervisor's job with such an order."""
        self._batches = server_handlers.batch_jobs(components)
        tables = [
            *self._peer_handlers(),
            self._batches.handlers(),
            *model_handlers.model_handlers(components, sampling),
            *about_the_machine,
            *server_handlers.server_handlers(components, self._peer_components.other_versions, self._batches),
        ]
        components.messages.add(merge_handlers(tables))
        self.preload = ModelPreload(
            settings=settings,
            loop=loop,
            models=components.models,
            targets=components.targets,
            view=components.scheduler.view,
            internal_calls=components.internal_calls,
            decisions=components.decisions,
            record=components.record,
        )
        self.readiness = ReadinessCalls(
            loop=loop,
            bus=components.bus,
            peers=components.peers,
            models=components.models,
            view=components.scheduler.view,
            record=components.record,
            calls=components.calls,
            awaited=self.preload.awaited,
            reserved=lambda: components.admission.reserved,
        )
        components.messages.add(self.readiness.handlers())
        self.shutdown = GracefulShutdown(
            settings=settings,
            loop=loop,
            listen_fd=listen_fd,
            bus=components.bus,
            peers=components.peers,
            placement=components.placement,
            gateway=components.gateway,
            scheduler=components.scheduler,
            decisions=components.decisions,
            messages=components.messages,
            other_versions=self._peer_components.other_versions,
            nodes=components.nodes,
        )

    def open(self) -> None:
        """Read the bus from now on, and start the gateway. Decide at once, unless there is something to take over."""
        loop, messages = self.components.loop, self.components.messages
        self.components.bus.listen(
            messages.received,
            self._logged,
            self._peer_components.monitor.outbox_overflowed,
            self._peer_components.other_versions.received,
            lambda peer: self.components.peers.message_received(peer, loop.now()),
        )
        self._peer_components.monitor.start()
        loop.after_each_iteration(self._send_log_batches)
        gateways = partial(self.components.peers.of, "gateway")
        messages.when_serving(partial(stale_files.remove_from_now_on, loop, self.components.process_context, gateways))
        messages.when_serving(self.components.devices.start)
        messages.when_serving(self._watch_memory)
        messages.when_serving(self.components.remote_lists.start)
        messages.when_serving(self._batches.start)
        messages.when_serving(self.components.nodes.start)
        self.components.gateway.start()
        if messages.transition is None:
            self.components.decisions.start()

    def watch_runtime_directory(self) -> None:
        """End the server if something else changes its directory from now on."""
        RuntimeDirectoryWatch(
            context=self.components.process_context,
            loop=self.components.loop,
            peers=self.components.peers,
            workers=self.components.workers,
            view=self.components.scheduler.view,
            messages=self.components.messages,
            end=self.shutdown.begin_failed,
        )

    def _watch_memory(self) -> None:
        components = self.components
        MemoryPressureWatch(components.loop, components.settings, components.scheduler, components.decisions)

    def take_over(self, survivors: Sequence[KeeperChild]) -> None:
        """Take over what an earlier supervisor left, before :meth:`open`."""
        components = self.components
        takeover = Takeover(
            loop=components.loop,
            bus=components.bus,
            peers=components.peers,
            gateways=TakenOverGateways(
                bus=components.bus,
                peers=components.peers,
                processes=components.gateway,
                ends=self._peer_components.gateway_ends,
                elsewhere=components.nodes.gateways,
            ),
            workers=TakenOverWorkers(
                loop=components.loop,
                workers=components.workers,
                models=components.models,
                scheduler=components.scheduler,
                accounting=components.accounting,
                errors=components.errors,
                has_files=components.nodes.worker_has,
                counted=components.resumed,
            ),
            jobs=components.jobs,
            job_kinds=self._job_kinds,
            responses=components.responses,
            messages=components.messages,
            decisions=components.decisions,
            handshake=self._peer_components.handshake,
            monitor=self._peer_components.monitor,
            other_versions=self._peer_components.other_versions,
            kill=components.kill_process,
            nodes=components.nodes.take_over(self._peer_components.handshake),
        )
        masters = [survivor for survivor in survivors if survivor.role == "gateway"]
        takeover.begin(partial(components.adopt_gateways, masters), components.local.survivors(survivors))
        rolling_restart = RollingRestart(
            components.bus, components.workers, components.models, components.scheduler, components.internal_calls
        )
        components.messages.when_serving(rolling_restart.begin)

    def _peer_handlers(self) -> list[dict[type, Handler]]:
        components = self.components
        loop, models, responses = components.loop, components.models, components.responses
        scheduler, admission = components.scheduler, components.admission
        inference = InferenceRequests(
            loop=loop,
            models=models,
            targets=components.targets,
            scheduler=scheduler,
            internal_calls=components.internal_calls,
            admission=admission,
            accounting=components.accounting,
            metrics=components.metrics,
            stats=components.stats,
            calls=components.calls,
            record=components.record,
        )
        return [
            self._peer_components.messages.handlers(),
            inference.handlers(),
            EngineReports(
                loop=loop,
                models=models,
                scheduler=scheduler,
                accounting=components.accounting,
                record=components.record,
            ).handlers(),
            ResponseCalls(loop, responses, components.calls).handlers(),
            AbandonedCalls(
                scheduler, admission, components.download_registry, responses, components.retained_log
            ).handlers(),
        ]

    def _logged(self, record: bytes) -> None:
        self.components.retained_log.append(record)

    def _send_log_batches(self) -> None:
        for peer, batch in self.components.retained_log.batches(self.components.bus.is_reading):
            self.components.bus.send(peer, batch)
