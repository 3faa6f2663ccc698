"""The gunicorn master: started on our listener, started again when it ends, killed when its heartbeat stops.

The master does not speak on the bus: it forks, and a ZeroMQ context must not be forked.  Instead it writes one byte
into a pipe in every iteration of its loop (at most a second apart).  The heartbeats count as messages of a peer of
role ``gateway_master``, so that silence is noticed in the same way as with every other peer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final

from protocol import ids
from protocol.failures import Code, Failure
from protocol.messages.admin import Peer
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.peer_liveness import PeerRegistry
from supervisor.processes.surviving_processes import SurvivingProcess
from supervisor.scheduler.backoff import Backoff, BackoffPolicy

ROLE: Final = "gateway_master"
STARTUP_ALLOWANCE_S: Final = 30.0
"""Before its first heartbeat the master imports gunicorn, which takes long on a busy machine."""
_STOPPING: Final = b"s"
"""The heartbeat of a master that has begun its orderly shutdown: it waits for its workers and writes no more."""

log = logs.get_logger()


class GatewayProcess:
    """Keeps one gunicorn master running."""

    def __init__(self, loop: Loop, processes: ChildProcesses, peers: PeerRegistry, listen_fd: int) -> None:
        """Nothing is started yet. ``listen_fd`` stays open here, so that no connection is refused meanwhile."""
        self._loop, self._processes, self._peers, self._listen_fd = loop, processes, peers, listen_fd
        self._backoff = Backoff(BackoffPolicy(0.1, 5.0, 10**6, 60.0))
        self._heartbeat_fd = -1
        self._id = ""
        self.child: ChildProcess | None = None
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
        try:
            self.child = self._processes.start(
                "gateway", "gateway", self._ended, environment, [self._listen_fd, write_fd]
            )
        finally:
            os.close(write_fd)
        self.on_heartbeat_pipe(self._heartbeat_fd)
        self._watch()

    def adopt(self, survivor: SurvivingProcess, heartbeat_fd: int) -> None:
        """Take over the master that an earlier supervisor started, and the end of its heartbeat pipe."""
        self._heartbeat_fd = heartbeat_fd
        self.child = self._processes.adopt(survivor, self._ended)
        self._watch()

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
