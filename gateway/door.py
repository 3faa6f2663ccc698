"""gunicorn's gevent worker as we want it: our way to serve a connection, to watch, and to leave."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, Final

import gevent
from gevent.event import Event
from gunicorn.workers.ggevent import GeventWorker

from gateway import bodies, plain
from gateway.acceptor import FEW, Acceptor
from gateway.bus import Bus
from gateway.connection import Connection
from gateway.house import House
from gateway.peer import Peer
from gateway.state import REFUSALS, State
from protocol import logs

_READ: Final = 1
_WELCOME_WAIT: Final = 1.0


class Door(GeventWorker):  # type: ignore[misc]
    """One gunicorn worker process. ``house`` is set in ``post_worker_init``."""

    house: House
    bus: Bus
    listener: Any
    common: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Before the fork: nothing that costs or that must not be shared."""
        super().__init__(*args, **kwargs)
        self.idle: set[Peer] = set()
        self._told = Event()
        self._watchers: list[Any] = []
        self._deadline: float | None = None
        self.patience = float(self.cfg.keepalive)
        self._keeps = True

    # Connections

    @property
    def stays(self) -> bool:
        """Whether connections may be kept for another request."""
        return self.alive and self._keeps

    def _serve(self, peer: Peer, address: Any) -> None:
        Connection(self, peer, address).serve()

    # The process

    def init_signals(self) -> None:
        """Let signals wake the loop at once."""
        super().init_signals()
        watcher = gevent.get_hub().loop.io(self.PIPE[0], _READ)
        watcher.start(self._signalled)
        self._watchers.append(watcher)

    def _signalled(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.PIPE[0], 512)
        if not self.alive:
            self._told.set()

    def watch_process(self, pid: int, callback: Any) -> None:
        """Call back in the hub when ``pid`` ends."""
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            gevent.get_hub().loop.run_callback(callback)
            return
        watcher = gevent.get_hub().loop.io(descriptor, _READ)

        def ended() -> None:
            watcher.stop()
            watcher.close()
            os.close(descriptor)
            callback()

        watcher.start(ended)
        self._watchers.append(watcher)

    def leave(self, grace: float) -> None:
        """Begin to leave, as the house says (in the hub)."""
        self._keeps = False
        self._deadline = time.monotonic() + grace
        if self.house.state is State.LOST:
            self.alive = False
        bodies.turn_away(REFUSALS[self.house.state])
        self._told.set()

    def run(self) -> None:
        """Serve until told to leave, then let running requests end."""
        self.listener = self.sockets[0].getsockname()
        self.common = plain.common(self.cfg, self.listener)
        with gevent.Timeout(_WELCOME_WAIT, exception=False):
            self.house.welcomed.wait()
        # Where there are several processes, each leaves the others what it cannot serve at once.
        few = FEW if self.cfg.workers == 1 else 1
        acceptors = [Acceptor(listener, self._serve, self.worker_connections, few) for listener in self.sockets]
        for acceptor in acceptors:
            acceptor.start()
        while self.alive:
            self.notify()
            self._told.wait(1.0)
            self._told.clear()
            if self._deadline is not None and time.monotonic() > self._deadline:
                gevent.get_hub().loop.run_callback(self.house.end_everything)
        self._close(acceptors)

    def _close(self, acceptors: list[Acceptor]) -> None:
        self._keeps = False
        for acceptor in acceptors:
            # At the house's end the others leave, too; a listener that nobody serves would let clients wait.
            acceptor.close(for_all=self.house.state is State.DRAINING)
        deadline = self._deadline or time.monotonic() + self.house.settings.grace
        while any(acceptors):
            for peer in self.idle:
                peer.give_up()
            if time.monotonic() > deadline + 1.0:
                break
            if time.monotonic() > deadline:
                gevent.get_hub().loop.run_callback(self.house.end_everything)
            self.notify()
            gevent.sleep(0.05)
        for acceptor in acceptors:
            acceptor.kill()
        gevent.sleep(0)

    def master_died(self) -> None:
        """Leave at once: nobody watches over us any more, and the next master brings its own workers."""
        logs.get().error("the gunicorn master is gone")
        os.kill(os.getpid(), signal.SIGKILL)
