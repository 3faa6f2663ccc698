"""The orderly shutdown: refuse new requests, let running ones end, stop the workers, stop the gateway."""

from __future__ import annotations

from typing import Final

from protocol.config.settings import Settings
from protocol.messages.peers import Draining, Shutdown
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.lifecycle.remote_nodes import RemoteNodes
from supervisor.lifecycle.startup import EXIT_FAILED
from supervisor.peers.other_versions import OtherVersions
from supervisor.processes.gateway_process import GatewayProcess
from supervisor.processes.listener import shut_listener
from supervisor.processes.placement import Placement
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.messages import Messages
from supervisor.scheduler.scheduler import Scheduler

_KILL_DELAY_S: Final = 5.0
"""Seconds after the grace period in which workers and gateways report the requests that they ended."""

log = logs.get_logger()


class GracefulShutdown:
    """The shutdown, begun by an order of the keeper. A second order ends everything at once."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        listen_fd: int,
        bus: SupervisorBus,
        peers: PeerRegistry,
        placement: Placement,
        gateway: GatewayProcess,
        scheduler: Scheduler,
        decisions: Decisions,
        messages: Messages,
        other_versions: OtherVersions,
        nodes: RemoteNodes,
    ) -> None:
        """Shut nothing down yet."""
        self._settings, self._loop, self._listen_fd = settings, loop, listen_fd
        self._bus, self._peers, self._placement, self._gateway = bus, peers, placement, gateway
        self._scheduler, self._decisions, self._messages = scheduler, decisions, messages
        self._other_versions, self._nodes = other_versions, nodes
        self._ordered = False
        self._gateway_stopped = False
        self.exit_code = 0
        """What the process is to exit with."""

    def begin_failed(self) -> None:
        """Begin the orderly shutdown of a server that cannot go on: it exits with 1."""
        self.exit_code = EXIT_FAILED
        self.begin()

    def ordered(self) -> None:
        """Handle the keeper's order to end."""
        if self._ordered:
            log.warning("second signal, ending at once")
            self._placement.kill_all()
        self._ordered = True
        self.begin()

    def begin(self) -> None:
        """Accept no more requests. End when running ones have ended, at the latest after the grace period."""
        self._messages.when_serving(self._begin)

    def _begin(self) -> None:
        if self._scheduler.view.closing:
            return
        grace = self._settings.grace
        log.info("stopping", running=self._scheduler.view.running, queued=self._scheduler.view.queued, grace=grace)
        for gateway in self._peers.of("gateway"):
            self._bus.send(gateway, Draining(grace))
        self._nodes.tell_end()
        self._scheduler.close()
        self._other_versions.tell_to_leave()
        for job in self._peers.of("job"):
            self._bus.send(job, Shutdown(0.0, "draining"))
        self._decisions.reconcile()
        self._loop.call_later(grace, self._end_grace)
        self._loop.every(0.02, self._check)

    def _check(self) -> None:
        if self._gateway.child is None:
            self._shut_listener()
        if not self._scheduler.view.running and not self._scheduler.view.queued:
            self._stop_rest()
        if len(self._placement) == 0 and self._nodes.end():
            self._loop.stop()

    def _stop_rest(self) -> None:
        self._scheduler.stop_all_workers()
        self._decisions.carry_out()
        # Engines may take seconds to end. Until then, gateways answer questions about the server.
        if not self._gateway_stopped and not self._peers.of("worker"):
            self._gateway_stopped = True
            self._gateway.terminate()

    def _end_grace(self) -> None:
        log.warning("grace is over", running=self._scheduler.view.running)
        for worker in self._peers.of("worker"):
            self._bus.send(worker, Shutdown(0.0, "grace is over", draining=True))
        self._gateway.terminate()
        self._loop.call_later(_KILL_DELAY_S, self._placement.kill_all)

    def _shut_listener(self) -> None:
        """Refuse new connections, which would otherwise wait until this process ends.

        A gateway that ended in order has already done this.
        """
        shut_listener(self._listen_fd)
