"""The gunicorn master of this machine: its heartbeat, its gateways, and those of earlier supervisors.

The master does not speak on the bus: it forks, and a ZeroMQ context must not be forked. Instead it writes one byte into
a pipe in every iteration of its loop (at most a second apart). The heartbeats count as messages of a peer with the role
``gateway_master``, so its silence is noticed like any other peer's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Final

from protocol import ids
from protocol.messages.peers import Hello, Peer
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import FINGERPRINT_VARIABLE, HEARTBEAT_VARIABLE
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.keeper import process_tree
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.fingerprints import release_of
from supervisor.processes.gateway_workers import GatewayWorkers, OnEnded
from supervisor.processes.gunicorn_masters import GunicornMasters
from supervisor.processes.keeper_children import KeeperChild

ROLE: Final = "gateway_master"
STARTUP_ALLOWANCE_S: Final = 30.0
"""Before its first heartbeat the master imports gunicorn, which takes long on a busy machine."""
_STOPPING: Final = b"s"
"""The heartbeat of a master that has begun its orderly shutdown: it waits for its workers, and writes no more."""

log = logs.get_logger()


class GatewayProcess:
    """Keeps one gunicorn master running, and has it killed when its heartbeat stops."""

    def __init__(
        self, loop: Loop, processes: ChildProcesses, peers: PeerRegistry, listen_fd: int, fingerprint: str = ""
    ) -> None:
        """Nothing is started yet.

        ``fingerprint``: of the settings and the release that a master must have. A master with another one is replaced.
        """
        self._loop, self._processes, self._peers, self._fingerprint = loop, processes, peers, fingerprint
        self._masters = GunicornMasters(loop, listen_fd, self.start, self._is_closing)
        self._masters.on_end = self._master_ended
        self._heartbeat_fd = -1
        self._id = ""
        self._workers = GatewayWorkers(loop)
        self._replaced_workers: set[int] = set()
        """Pids of gateways of masters that were replaced."""
        self.serves = False
        """Whether a gateway that this supervisor does not replace has said Hello."""
        self._when_serving: list[Callable[[], None]] = []
        self.closing: Callable[[], bool] = lambda: False
        """Whether the server is shutting down, so that an ended master is not restarted."""
        self.on_not_understood: Callable[[], None] = lambda: None
        """Called when a gateway that was started for this release speaks another version: other files are installed now."""

    @property
    def child(self) -> ChildProcess | None:
        """The master that accepts connections."""
        return self._masters.present

    def _is_closing(self) -> bool:
        return self.closing()

    def start(self) -> None:
        """Start gunicorn, unless it runs or the server is shutting down."""
        if self.child is not None or self.closing():
            return
        self._heartbeat_fd, write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        variables = {HEARTBEAT_VARIABLE: str(write_fd), FINGERPRINT_VARIABLE: self._fingerprint}
        try:
            self._masters.start(self._processes, variables, [write_fd])
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
            present = survivor is latest and heartbeat_fd >= 0
            child = self._masters.adopt(self._processes, survivor, present=present)
            if present:
                self._heartbeat_fd = heartbeat_fd
                self._watch()
            elif release_of(survivor.fingerprint) == release_of(self._fingerprint):
                self._retire(child)
        return gateways

    def _retire(self, child: ChildProcess) -> None:
        self._replaced_workers.update(process_tree.children(child.pid))
        self._masters.retire(child)

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
        self._masters.terminate()

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
        self._masters.ready()
        if self.serves or not self._has_started(gateway):
            return
        self.serves = True
        callbacks, self._when_serving = self._when_serving, []
        for callback in callbacks:
            callback()
        for child in list(self._masters.former):
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

    def _master_ended(self) -> None:
        if self.child is None:
            self._close_heartbeat()
            self._peers.remove(self._id)
