"""The gunicorn master: started on our listener, restarted when it ends, killed when its heartbeat stops.

The master does not speak on the bus: it forks, and a ZeroMQ context must not be forked. Instead it writes one byte into
a pipe in every iteration of its loop (at most a second apart). The heartbeats count as messages of a peer with the role
``gateway_master``, so its silence is noticed like any other peer's.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

from protocol import ids
from protocol.failures import Code, Failure
from protocol.messages.peers import Hello, Peer
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import FINGERPRINT_VARIABLE, HEARTBEAT_VARIABLE
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.keeper import process_tree
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.fingerprints import release_of
from supervisor.processes.gateway_workers import GatewayWorkers, OnEnded
from supervisor.processes.keeper_children import KeeperChild
from supervisor.scheduler.backoff import Backoff, BackoffPolicy

ROLE: Final = "gateway_master"
STARTUP_ALLOWANCE_S: Final = 30.0
"""Before its first heartbeat the master imports gunicorn, which takes long on a busy machine."""
RETIRE_INTERVAL_S: Final = 1.0
_STOPPING: Final = b"s"
"""The heartbeat of a master that has begun its orderly shutdown: it waits for its workers, and writes no more."""

log = logs.get_logger()


class GatewayProcess:
    """Keeps one gunicorn master running."""

    def __init__(
        self, loop: Loop, processes: ChildProcesses, peers: PeerRegistry, listen_fd: int, fingerprint: str = ""
    ) -> None:
        """Nothing is started yet. ``listen_fd`` stays open here, so that no connection is refused meanwhile.

        ``fingerprint``: of the settings and the release that a master must have. A master with another one is replaced.
        """
        self._loop, self._processes, self._peers, self._listen_fd = loop, processes, peers, listen_fd
        self._fingerprint = fingerprint
        self._backoff = Backoff(BackoffPolicy(0.1, 5.0, 10**6, 60.0))
        self._heartbeat_fd = -1
        self._id = ""
        self.child: ChildProcess | None = None
        self._former: list[ChildProcess] = []
        """Masters of another release, until gateways of this one serve."""
        self._retired: list[ChildProcess] = []
        """Masters that were replaced: they accept no connections, and end with their last request."""
        self._workers = GatewayWorkers(loop)
        self._replaced_workers: set[int] = set()
        """Pids of gateways of such masters."""
        self.serves = False
        """Whether a gateway that this supervisor does not replace has said Hello."""
        self._when_serving: list[Callable[[], None]] = []
        self.closing: Callable[[], bool] = lambda: False
        """Whether the server is shutting down, so that an ended master is not restarted."""
        self.on_not_understood: Callable[[], None] = lambda: None
        """Called when a gateway that was started for this release speaks another version: other files are installed now."""

    def start(self) -> None:
        """Start gunicorn, unless it runs or the server is shutting down."""
        if self.child is not None or self.closing():
            return
        self._heartbeat_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        environment = {"LEMONBUS_LISTEN_FD": str(self._listen_fd), HEARTBEAT_VARIABLE: str(write_fd)}
        environment[FINGERPRINT_VARIABLE] = self._fingerprint
        try:
            self.child = self._processes.start(
                "gateway", "gateway", self._ended, environment, [self._listen_fd, write_fd]
            )
        finally:
            os.close(write_fd)
        self._watch()

    def adopt(self, survivors: Sequence[KeeperChild], on_worker_ended: OnEnded) -> list[str]:
        """Take over the masters that earlier supervisors started. Return the names of their gateways, watched as in :meth:`joined`.

        The latest one of this release with these settings goes on. Those of another release stay until gateways of this
        one serve: if this supervisor ends before that, the other release goes on with them. All others are retired.
        """
        gateways = [name for each in survivors for name in self._workers.find(each.pid, on_worker_ended)]
        own = [each for each in survivors if each.fingerprint == self._fingerprint]
        latest = max(own, key=lambda each: each.started, default=None)
        heartbeat_fd = latest.open_heartbeat() if latest is not None else -1
        for survivor in survivors:
            if survivor is latest and heartbeat_fd >= 0:
                self._heartbeat_fd = heartbeat_fd
                self.child = self._processes.adopt(survivor, self._ended)
                self._watch()
            elif release_of(survivor.fingerprint) == release_of(self._fingerprint):
                self._retire(self._adopt_replaced(survivor))
            else:
                self._former.append(self._adopt_replaced(survivor))
        return gateways

    def _adopt_replaced(self, survivor: KeeperChild) -> ChildProcess:
        """Watch a master that this supervisor's master replaces, now or later."""

        def ended(why: str) -> None:
            for replaced in (self._former, self._retired):
                if child in replaced:
                    replaced.remove(child)
            log.info("replaced gateway gone", gateway_pid=survivor.pid, why=why)

        child = self._processes.adopt(survivor, ended)
        return child

    def _retire(self, child: ChildProcess) -> None:
        """Let a master end with its last request. Another one accepts connections from now on."""

        def remind() -> None:
            # Repeatedly: a master that is still starting ignores it.
            if child in self._retired:
                child.signal(signal.SIGWINCH)
                self._loop.call_later(RETIRE_INTERVAL_S, remind)

        self._retired.append(child)
        self._replaced_workers.update(process_tree.children(child.pid))
        log.info("gateway replaced: it ends with its last request", gateway_pid=child.pid)
        remind()

    def is_replaced(self, gateway: str) -> bool:
        """Return whether a gateway was replaced by another, so that its end is not a fault."""
        return self._workers.pid(gateway) in self._replaced_workers

    def kill(self, name: str) -> None:
        """Kill a gateway, or the master; do nothing if neither has this name."""
        if self.child is not None and name == self._id:
            self._processes.kill(self.child)
        else:
            self._workers.kill(name)

    def terminate(self) -> None:
        """Ask every master to end within the grace period."""
        for child in [*self._former, *self._retired, *([self.child] if self.child is not None else [])]:
            self._processes.terminate(child)

    def _watch(self) -> None:
        self._loop.on_readable(self._heartbeat_fd, self._heartbeat)
        if self.child is not None and self.child.pid:
            self._id = ids.peer_id("master")
            self._peers.add(Peer(ROLE, self._id, self.child.pid), self._loop.now() + STARTUP_ALLOWANCE_S)

    def joined(self, hello: Hello, on_ended: OnEnded) -> str:
        """Call a gateway by its id from now on, and return its former name. ``on_ended`` gets its name once, at its end."""
        return self._workers.joined(hello, on_ended)

    def worker_up(self, gateway: str) -> None:
        """Note that a gateway can serve: earlier failures are forgotten."""
        self._backoff.ready()
        if self.serves or not self._has_started(gateway):
            return
        self.serves = True
        callbacks, self._when_serving = self._when_serving, []
        for callback in callbacks:
            callback()
        former, self._former = self._former, []
        for child in former:
            self._retire(child)

    def not_understood(self, gateway: str) -> None:
        """Note that a gateway speaks another version of the protocol."""
        if self._has_started(gateway):
            self.on_not_understood()

    def _has_started(self, gateway: str) -> bool:
        """Return whether a gateway is one of the present master."""
        pid = self._workers.pid(gateway)  # 0 for a gateway of another node
        return self.child is not None and bool(pid) and process_tree.parent(pid) == self.child.pid

    def when_serving(self, callback: Callable[[], None]) -> None:
        """Call back as soon as :attr:`serves` is true; now, if it is."""
        if self.serves:
            callback()
        else:
            self._when_serving.append(callback)

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
