"""The orderly shutdown: refuse new requests, let running ones end, stop the workers, stop the gateway."""

from __future__ import annotations

from typing import Final

from protocol.messages.peers import Draining, Shutdown
from protocol.runtime import logs
from protocol.runtime.loop import Timer
from supervisor.lifecycle.startup import EXIT_FAILED
from supervisor.processes.listener import shut_listener
from supervisor.runtime.supervisor import Supervisor

_KILL_DELAY_S: Final = 5.0
"""Seconds after the grace period in which workers and gateways report the requests that they ended."""

log = logs.get_logger()


class GracefulShutdown:
    """The shutdown, begun by an order of the keeper. A second order ends everything at once."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Shut nothing down yet."""
        self._supervisor = supervisor
        self._ordered = False
        self._gateway_stopped = False
        self._deadline: Timer | None = None
        self.exit_code = 0
        """What the process is to exit with."""
        supervisor.on_process_ended = self._check

    def begin_failed(self) -> None:
        """Begin the orderly shutdown of a server that cannot go on: it exits with 1."""
        self.exit_code = EXIT_FAILED
        self.begin()

    def ordered(self) -> None:
        """Handle the keeper's order to end."""
        if self._ordered:
            log.warning("second signal, ending at once")
            self._supervisor.processes.kill_all()
        self._ordered = True
        self.begin()

    def begin(self) -> None:
        """Accept no more requests. End when running ones have ended, at the latest after the grace period."""
        self._supervisor.when_serving(self._begin)

    def _begin(self) -> None:
        supervisor = self._supervisor
        if supervisor.scheduler.view.closing:
            return
        grace = supervisor.settings.grace
        log.info(
            "stopping", running=supervisor.scheduler.view.running, queued=supervisor.scheduler.view.queued, grace=grace
        )
        for gateway in supervisor.peers.of("gateway"):
            supervisor.bus.send(gateway, Draining(grace))
        supervisor.scheduler.close()
        for on_closing in supervisor.on_closing:
            on_closing()
        for job in supervisor.peers.of("job"):
            supervisor.bus.send(job, Shutdown(0.0, "draining"))
        supervisor.reconcile()
        self._deadline = supervisor.loop.call_later(grace, self._end_grace)
        supervisor.loop.every(0.02, self._check)

    def _check(self) -> None:
        supervisor = self._supervisor
        if not supervisor.scheduler.view.closing:
            return
        if supervisor.gateway.child is None:
            self._shut_listener()
        if supervisor.scheduler.view.running == 0:
            self._stop_rest()
        if len(supervisor.processes) == 0:
            supervisor.loop.stop()

    def _stop_rest(self) -> None:
        supervisor = self._supervisor
        if not self._gateway_stopped:
            self._gateway_stopped = True
            supervisor.gateway.terminate()
        supervisor.scheduler.stop_all_workers()
        supervisor.execute_effects()

    def _end_grace(self) -> None:
        supervisor = self._supervisor
        log.warning("grace is over", running=supervisor.scheduler.view.running)
        for worker in supervisor.peers.of("worker"):
            supervisor.bus.send(worker, Shutdown(0.0, "grace is over", draining=True))
        supervisor.gateway.terminate()
        supervisor.loop.call_later(_KILL_DELAY_S, supervisor.processes.kill_all)

    def _shut_listener(self) -> None:
        """Refuse new connections, which would otherwise wait until this process ends.

        A gateway that ended in order has already done this.
        """
        shut_listener(self._supervisor.listen_fd)
