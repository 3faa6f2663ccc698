"""The supervisor: connects its parts and gives each what it needs.

A message, the end of a process or a timer comes in. A handler (:mod:`supervisor.handlers`) translates it into an event of
the scheduler, which decides what follows, as a list of effects (:mod:`supervisor.runtime.decisions`). An exception in a
handler, in the scheduler or in an effect fails that one step and is counted (:mod:`supervisor.internal_errors`).

What a part can touch is what its constructor takes. Only this folder knows the whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from protocol.config.settings import Settings
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.handlers.engine_reports import EngineReports
from supervisor.handlers.models import sampling_defaults
from supervisor.handlers.other_versions import OtherVersions
from supervisor.handlers.peer_ends import GatewayEnds, WorkerEnds
from supervisor.handlers.peers import PeerMessages
from supervisor.handlers.requests import InferenceRequests
from supervisor.handlers.responses import ResponseCalls
from supervisor.handlers.server_state import AbandonedCalls
from supervisor.lifecycle import handlers
from supervisor.lifecycle.parts import Parts
from supervisor.lifecycle.preload import ModelPreload
from supervisor.lifecycle.runtime_check import RuntimeDirectoryCheck
from supervisor.lifecycle.shutdown import GracefulShutdown
from supervisor.processes import left_files
from supervisor.processes.keeper_children import KeeperChild
from supervisor.processes.peer_monitor import PeerMonitor
from supervisor.recovery.taken_over_jobs import TakeOver
from supervisor.recovery.taken_over_workers import TakenOverWorkers
from supervisor.recovery.takeover import Recovery
from supervisor.reload.outdated import OutdatedProcesses
from supervisor.runtime.handler_table import Handler, merge_handlers

log = logs.get_logger()


class Supervisor:
    """All of the supervisor process."""

    def __init__(self, settings: Settings, process_context: ProcessContext, loop: Loop, listen_fd: int) -> None:
        """Open the bus; start no process yet. The caller holds the lock of the runtime directory and the listener.

        Raises OSError if the sockets of the bus cannot be made.
        """
        parts = self.parts = Parts(settings, process_context, loop, listen_fd)
        self._connect_peers()
        self._job_kinds: dict[type, TakeOver] = {}
        """Type of an order → what takes over an earlier supervisor's job with such an order."""
        tables = [
            *self._peer_handlers(),
            *handlers.about_models(parts, self._sampling, self._job_kinds),
            *handlers.about_the_machine(parts, self._job_kinds),
            *handlers.about_the_server(parts, self._other_versions),
        ]
        parts.messages.add(merge_handlers(tables))
        self.preload = ModelPreload(settings, parts.models, parts.targets, parts.internal_calls, parts.decisions)
        self.shutdown = GracefulShutdown(
            settings=settings,
            loop=loop,
            listen_fd=listen_fd,
            bus=parts.bus,
            peers=parts.peers,
            processes=parts.processes,
            gateway=parts.gateway,
            scheduler=parts.scheduler,
            decisions=parts.decisions,
            messages=parts.messages,
            other_versions=self._other_versions,
        )

    def open(self) -> None:
        """Read the bus from now on, and start the gateway. Decide at once, unless there is something to take over."""
        loop, bus, peers, messages = self.parts.loop, self.parts.bus, self.parts.peers, self.parts.messages
        monitor = PeerMonitor(loop, bus, peers, self.parts.kill_process)
        bus.listen(messages.received, self._logged, monitor.outbox_overflowed, self._other_versions.received)
        logs.set_sink(self._logged)
        monitor.start()
        loop.after_each_iteration(self._send_log_batches)
        gateways = partial(peers.of, "gateway")
        messages.when_serving(partial(left_files.remove_from_now_on, loop, self.parts.process_context, gateways))
        self.parts.gateway.start()
        if messages.transition is None:
            self.parts.decisions.start()

    def watch_runtime_directory(self) -> None:
        """End the server if something else changes its directory from now on."""
        parts, end = self.parts, self.shutdown.begin_failed
        RuntimeDirectoryCheck(
            parts.process_context, parts.loop, parts.peers, parts.workers, parts.scheduler.view, parts.messages, end
        )

    def take_over(self, survivors: Sequence[KeeperChild]) -> None:
        """Take over what an earlier supervisor left, before :meth:`open`."""
        parts = self.parts
        recovery = Recovery(
            process_context=parts.process_context,
            loop=parts.loop,
            bus=parts.bus,
            peers=parts.peers,
            gateway=parts.gateway,
            workers=TakenOverWorkers(parts.loop, parts.workers, parts.models, parts.scheduler, parts.errors),
            jobs=parts.jobs,
            job_kinds=self._job_kinds,
            responses=parts.responses,
            messages=parts.messages,
            decisions=parts.decisions,
            peer_messages=self._peer_messages,
            gateway_ends=self._gateway_ends,
            other_versions=self._other_versions,
            kill=parts.kill_process,
        )
        recovery.begin(survivors)
        outdated = OutdatedProcesses(parts.bus, parts.workers, parts.models, parts.scheduler, parts.internal_calls)
        parts.messages.when_serving(outdated.bring_up_to_date)

    def _connect_peers(self) -> None:
        """Make what handles the comings and goings of gateways and workers."""
        parts = self.parts
        settings, context, loop, bus, peers = parts.settings, parts.process_context, parts.loop, parts.bus, parts.peers
        workers, gateway, jobs, calls = parts.workers, parts.gateway, parts.jobs, parts.calls
        scheduler, decisions, messages, admission = parts.scheduler, parts.decisions, parts.messages, parts.admission
        self._other_versions = OtherVersions(
            loop, bus, gateway, jobs, scheduler, decisions, messages, parts.targets, parts.internal_calls
        )
        downloads, responses, logbook = parts.downloads, parts.responses, parts.logbook
        self._gateway_ends = GatewayEnds(
            context, bus, peers, gateway, scheduler, decisions, admission, downloads, responses, logbook
        )
        ends = WorkerEnds(loop, bus, peers, scheduler, decisions, messages, parts.grant_notices, self._other_versions)
        workers.on_ended = ends.gone
        file = Path(settings.state_dir) / sampling_defaults.FILE
        defaults = sampling_defaults.SamplingDefaultsStore(
            file, parts.models.problems.append, parts.state_writer.finish
        )
        self._sampling = sampling_defaults.SamplingDefaultsCalls(defaults, calls, bus, peers)
        self._peer_messages = PeerMessages(
            settings=settings,
            process_context=context,
            loop=loop,
            bus=bus,
            peers=peers,
            workers=workers,
            gateway=gateway,
            jobs=jobs,
            scheduler=scheduler,
            admission=admission,
            gateway_ends=self._gateway_ends,
            other_versions=self._other_versions,
            barrier=parts.barrier,
            errors=parts.errors,
            send_sampling_defaults=self._sampling.send,
        )

    def _peer_handlers(self) -> list[dict[type, Handler]]:
        parts = self.parts
        loop, models, scheduler, admission = parts.loop, parts.models, parts.scheduler, parts.admission
        internal_calls, metrics, stats, calls = parts.internal_calls, parts.metrics, parts.stats, parts.calls
        return [
            self._peer_messages.handlers(),
            EngineReports(loop, models, scheduler, admission, metrics).handlers(),
            InferenceRequests(
                loop, models, parts.targets, scheduler, internal_calls, admission, metrics, stats, calls
            ).handlers(),
            ResponseCalls(loop, parts.responses, calls).handlers(),
            AbandonedCalls(scheduler, admission, parts.downloads, parts.responses, parts.logbook).handlers(),
        ]

    def _logged(self, record: bytes) -> None:
        self.parts.logbook.append(record)

    def _send_log_batches(self) -> None:
        for peer, batch in self.parts.logbook.batches(self.parts.bus.is_reading):
            self.parts.bus.send(peer, batch)
