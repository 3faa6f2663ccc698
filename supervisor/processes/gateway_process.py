"""The gunicorn master: started on our listener, started again when it ends, killed when its heartbeat stops.

The master does not speak on the bus: it forks, and a ZeroMQ context must not be forked.  Instead it writes one byte
into a pipe in every iteration of its loop (at most a second apart).  The heartbeats count as messages of a peer of
role ``gateway_master``, so that silence is noticed in the same way as with every other peer.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

from protocol import ids
from protocol.failures import Code, Failure
from protocol.messages.peers import Peer
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import FINGERPRINT_VARIABLE
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.peer_liveness import PeerRegistry
from supervisor.processes.surviving_processes import SurvivingProcess
from supervisor.scheduler.backoff import Backoff, BackoffPolicy

ROLE: Final = "gateway_master"
STARTUP_ALLOWANCE_S: Final = 30.0
"""Before its first heartbeat the master imports gunicorn, which takes long on a busy machine."""
RETIRE_INTERVAL_S: Final = 1.0
_STOPPING: Final = b"s"
"""The heartbeat of a master that has begun its orderly shutdown: it waits for its workers and writes no more."""

log = logs.get_logger()


class GatewayProcess:
    """Keeps one gunicorn master running."""

    def __init__(
        self, loop: Loop, processes: ChildProcesses, peers: PeerRegistry, listen_fd: int, fingerprint: str = ""
    ) -> None:
        """Nothing is started yet. ``listen_fd`` stays open here, so that no connection is refused meanwhile.

        ``fingerprint``: of the settings and the release that a master is to have; one with another is replaced.
        """
        self._loop, self._processes, self._peers, self._listen_fd = loop, processes, peers, listen_fd
        self._fingerprint = fingerprint
        self._backoff = Backoff(BackoffPolicy(0.1, 5.0, 10**6, 60.0))
        self._heartbeat_fd = -1
        self._id = ""
        self.child: ChildProcess | None = None
        self._retired: list[ChildProcess] = []
        """Masters that were replaced: they take no connection, and end with their last request."""
        self.closing: Callable[[], bool] = lambda: False
        """Whether the server is shutting down, so that an ended master is not started again."""
        self.on_ended: Callable[[], None] = lambda: None
        self.on_worker_up: Callable[[], None] = lambda: None
        """Called when a gateway worker has said Hello."""
        self.on_heartbeat_pipe: Callable[[int], None] = lambda _: None
        """Called with the end of each new heartbeat pipe that is read here: the keeper keeps it for a later supervisor."""

    def start(self) -> None:
        """Start gunicorn, unless it runs or the server is shutting down."""
        if self.child is not None or self.closing():
            return
        self._heartbeat_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        environment = {"LEMONBUS_LISTEN_FD": str(self._listen_fd), "LEMONBUS_HEARTBEAT_FD": str(write_fd)}
        environment[FINGERPRINT_VARIABLE] = self._fingerprint
        try:
            self.child = self._processes.start(
                "gateway", "gateway", self._ended, environment, [self._listen_fd, write_fd]
            )
        finally:
            os.close(write_fd)
        self.on_heartbeat_pipe(self._heartbeat_fd)
        self._watch()

    def adopt(self, survivors: Sequence[SurvivingProcess], heartbeat_fd: int) -> None:
        """Take over the masters that earlier supervisors started.

        The one that was started last goes on, unless it was started for other settings or by another release; the others are
        retired.  ``heartbeat_fd``: the end of that one's heartbeat pipe, -1 if it was lost.
        """
        *older, latest = sorted(survivors, key=lambda each: each.started)
        for survivor in older:
            self._retire(survivor)
        if heartbeat_fd >= 0 and latest.fingerprint == self._fingerprint:
            self._heartbeat_fd = heartbeat_fd
            self.child = self._processes.adopt(latest, self._ended)
            self._watch()
            return
        self._retire(latest)
        if heartbeat_fd >= 0:
            os.close(heartbeat_fd)

    def _retire(self, survivor: SurvivingProcess) -> None:
        """Let a master end with its last request; another one takes the connections from now on."""

        def ended(why: str) -> None:
            self._retired.remove(child)
            log.info("replaced gateway gone", gateway_pid=survivor.pid, why=why)
            self.on_ended()

        def remind() -> None:
            # Again and again: one that is still starting ignores it.
            if child in self._retired:
                child.signal(signal.SIGWINCH)
                self._loop.call_later(RETIRE_INTERVAL_S, remind)

        child = self._processes.adopt(survivor, ended)
        self._retired.append(child)
        log.info("gateway replaced: it ends with its last request", gateway_pid=survivor.pid)
        remind()

    def terminate(self) -> None:
        """Ask every master to end within the grace."""
        for child in [*self._retired, *([self.child] if self.child is not None else [])]:
            self._processes.terminate(child)

    def _watch(self) -> None:
        self._loop.on_readable(self._heartbeat_fd, self._heartbeat)
        if self.child is not None and self.child.pid:
            self._id = ids.peer_id("master")
            self._peers.add(Peer(ROLE, self._id, self.child.pid), self._loop.now() + STARTUP_ALLOWANCE_S)

    def worker_up(self) -> None:
        """Forget earlier failures: a gateway worker is up."""
        self._backoff.ready()
        self.on_worker_up()

    def _heartbeat(self) -> None:
        with contextlib.suppress(BlockingIOError):
            beats = os.read(self._heartbeat_fd, 512)
            if _STOPPING in beats:
                self._peers.remove(self._id)
            elif beats:
                self._peers.message_received(self._id, self._loop.now())
            else:  # every process that had the other end is gone
                self._close_heartbeat()

    def _close_heartbeat(self) -> None:
        if self._heartbeat_fd >= 0:
            self._loop.on_readable(self._heartbeat_fd, None)
            os.close(self._heartbeat_fd)
            self._heartbeat_fd = -1

    def _ended(self, why: str) -> None:
        self.child = None
        self._close_heartbeat()
        self._peers.remove(self._id)
        if not self.closing():
            self._backoff.load_failed(Failure(Code.INTERNAL, why), self._loop.now())
            pause = self._backoff.pause(self._loop.now())
            log.error("gateway died", why=why, restart_in=pause)
            self._loop.call_later(pause, self.start)
        self.on_ended()
