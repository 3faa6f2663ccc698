"""The gunicorn worker class: serves connections with our HTTP code, watches other processes, and shuts down in order on SIGTERM.

`gateway/bus/admission.py` decides whether requests are admitted meanwhile; ``SupervisorSession.drain`` tells it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import gevent
from gevent import events
from gevent.event import Event
from gunicorn.workers.ggevent import GeventWorker

from gateway.bus.session import SupervisorSession
from gateway.bus.sockets import GatewayBus
from gateway.http.body_memory import BodyMemory
from gateway.http.connections import wsgi_environ
from gateway.http.connections.client_socket import ClientSocket, end_all_idle, end_oldest_idle, not_reading
from gateway.http.connections.connection import ClientConnection
from gateway.http.connections.start_queue import StartQueue
from gateway.http.errors import ErrorFormats
from gateway.http.request_context import MEMORY_KEY
from gateway.http.request_counts import RequestCounts
from gateway.process_watch import ProcessWatch
from gateway.requests.admission_states import AdmissionState
from gateway.server.acceptor import ACCEPT_BATCH, Acceptor
from protocol.models.nodes import HEAD
from protocol.runtime import logs

_READ: Final = 1
_WELCOME_WAIT_S: Final = 1.0
"""Seconds for which no connections are accepted while the supervisor has not answered."""
_NO_WELCOME: Final = 1
_RESERVED_DESCRIPTORS: Final = 16
"""File descriptors kept free for the bus's sockets, for spooled bodies and for fetched images.

If none is left when another process connects to it, ZeroMQ aborts the process.
"""
_NOT_READING_S: Final = 2.0
"""Seconds for which a client may take nothing of its answer while others get no connection."""
_LAST_REPORT_S: Final = 0.02
"""Time for the last report to leave this process."""
_REFUSALS_S: Final = 0.2
"""Seconds for refusing the waiting requests, before a process without a supervisor ends."""


def _free_descriptors() -> int:
    """Return how many more files this process may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit - len(list(Path("/proc/self/fd").iterdir()))


class GunicornWorker(GeventWorker):  # type: ignore[misc]
    """One gateway process. ``session``, ``body_memory`` and ``bus`` are set in ``post_worker_init``."""

    session: SupervisorSession
    body_memory: BodyMemory
    bus: GatewayBus
    base_environ: dict[str, Any]
    error_formats: ErrorFormats
    error_headers: Mapping[str, str]
    request_counts: RequestCounts

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Prepare before the fork: make nothing that takes time or must not be shared."""
        super().__init__(*args, **kwargs)
        self.idle: dict[ClientSocket, None] = {}
        self._stop_event = Event()
        self._watchers: list[Any] = []
        self._watches: list[ProcessWatch] = []
        self._deadline: float | None = None
        self.keep_alive_s = float(self.cfg.keepalive)
        self.serving = False
        """Whether requests may be running."""
        self._keep_alive = True
        self._accepts = True
        self._acceptors: list[Acceptor] = []

    # Connections

    @property
    def keeps_connections(self) -> bool:
        """Whether connections may be kept for another request."""
        return self.alive and self._keep_alive

    def _serve(self, client_socket: ClientSocket, address: Any) -> None:
        ClientConnection(self, client_socket, address).serve()

    def _end_unused_connection(self) -> bool:
        """End a connection for a new one; return whether there was one to end (in the hub).

        The one that has waited longest for a request, or else one whose client takes nothing of its answer, or sends
        nothing of its body.
        """
        if end_oldest_idle(self.idle):
            return True
        stuck = next(iter(not_reading), None)
        if stuck is not None and time.monotonic() - not_reading[stuck] >= _NOT_READING_S:
            stuck.give_up()
            return True
        return self.body_memory.give_up_oldest()

    # The process

    def patch(self) -> None:
        """Let the standard library wait in greenlets; call no plugins.

        Before and after each of its patches, gevent would look for plugins in every installed package: 0.1 s.
        """
        events.notify_and_call_entry_points = events.notify
        super().patch()

    def init_signals(self) -> None:
        """Let signals end the wait of :meth:`run` at once."""
        super().init_signals()
        watcher = gevent.get_hub().loop.io(self.PIPE[0], _READ)
        watcher.start(self._signal_arrived)
        self._watchers.append(watcher)

    def _signal_arrived(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.PIPE[0], 512)
        if not self.alive:
            self._stop_event.set()

    def watch_process(self, pid: int, callback: Callable[[], None]) -> None:
        """Call back in the hub when ``pid`` ends."""
        self._watches.append(ProcessWatch(pid, callback))

    def pause_accepting(self) -> None:
        """Accept no new connections, and end idle ones, until :meth:`resume_accepting`: other processes are about to accept (in the hub)."""
        self._accepts = self._keep_alive = False
        for acceptor in self._acceptors:
            acceptor.pause()
        end_all_idle(self.idle)

    def resume_accepting(self) -> None:
        """Accept connections again (in the hub)."""
        self._accepts = self._keep_alive = True
        for acceptor in self._acceptors:
            acceptor.start()

    def begin_shutdown(self, grace: float) -> None:
        """End within ``grace`` seconds: the supervisor said so, or is gone (in the hub)."""
        self._keep_alive = False
        self._deadline = time.monotonic() + grace
        # The supervisor has no way to end the process of a gateway on another node; gunicorn starts another one.
        dismissed = self.session.node != HEAD and self.session.admission.state is AdmissionState.REPLACED
        if dismissed or self.session.admission.state is AdmissionState.LOST:
            self.alive = False
        self.body_memory.end_all(self.session.admission.refusal)
        self._stop_event.set()

    def run(self) -> None:
        """Serve until the shutdown begins, then let running requests end."""
        self.error_formats = self.wsgi.error_formats
        self.error_headers = self.wsgi.error_headers
        self.request_counts = self.session.request_counts
        self.base_environ = wsgi_environ.process_environ(self.sockets[0].getsockname(), self.cfg.workers)
        self.base_environ[MEMORY_KEY] = self.body_memory
        with gevent.Timeout(_WELCOME_WAIT_S, exception=False):
            self.session.has_started.wait()
        # If there are several processes, each leaves connections that it cannot serve at once to the others.
        accept_batch = ACCEPT_BATCH if self.cfg.workers == 1 else 1
        most = min(self.worker_connections, _free_descriptors() - _RESERVED_DESCRIPTORS)
        self._acceptors = acceptors = [
            Acceptor(listener, self._serve, most, accept_batch, self._end_unused_connection)
            for listener in self.sockets
        ]
        self.start_queue = StartQueue()
        self.serving = True
        for acceptor in acceptors:
            acceptor.start() if self._accepts else acceptor.pause()
        welcome_deadline = time.monotonic() + 2 * self.session.settings.peer_silence
        while self.alive:
            self.notify()
            self._stop_event.wait(1.0)
            self._stop_event.clear()
            if self.session.admission.state is AdmissionState.STARTING and time.monotonic() > welcome_deadline:
                self._end_unwelcomed()
            if self._deadline is not None and time.monotonic() > self._deadline:
                gevent.get_hub().loop.run_callback(self.session.fail_everything)
        self._close(acceptors)

    def _end_unwelcomed(self) -> None:
        """End this process, which would refuse all requests with 503 ``starting``; gunicorn replaces it."""
        reason = "it did not answer" if self.bus.control_file.exists() else "its socket is missing"
        fields = {"socket": str(self.bus.control_file), "reason": reason}
        logs.get_logger().error("the supervisor cannot be reached; this gateway process ends", **fields)
        gevent.get_hub().loop.run_callback(self.session.give_up_waiting)
        gevent.sleep(_REFUSALS_S)
        self.bus.close()
        os._exit(_NO_WELCOME)

    def _close(self, acceptors: list[Acceptor]) -> None:
        self._keep_alive = False
        for acceptor in acceptors:
            # When the whole server stops, the other processes end as well: clients would wait at a listener without a
            # server.
            acceptor.close(for_all=self.session.admission.server_ends)
        while any(acceptors):
            end_all_idle(self.idle)
            # A process that is only replaced has no deadline: its requests take the time that they need.
            late = time.monotonic() - self._deadline if self._deadline is not None else 0.0
            if late > 1.0:
                break
            if late > 0.0:
                gevent.get_hub().loop.run_callback(self.session.fail_everything)
            self.notify()
            gevent.sleep(0.05)
        for acceptor in acceptors:
            acceptor.kill()
        gevent.get_hub().loop.run_callback(self.session.report_last_requests)
        gevent.sleep(_LAST_REPORT_S)
        self.serving = False

    def handle_abort(self, _signal: int, _frame: Any) -> None:
        """End at once: gunicorn's watchdog gave this process up.

        gunicorn would raise ``SystemExit`` in whatever greenlet runs now, close the bus, and let requests go on for a
        moment: each would be answered with a traceback.  The supervisor removes the spool files of a process that died.
        """
        logs.get_logger().error("this gateway process was aborted: gunicorn got no heartbeat from it")
        os._exit(1)

    def handle_quit(self, _signal: int, _frame: Any) -> None:
        """End within the grace period (SIGINT, SIGQUIT): gunicorn would exit under running requests."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.session.settings.grace
        self.alive = False

    def master_died(self) -> None:
        """End at once: no process would replace this one, and the next master starts its own workers."""
        logs.get_logger().error("the gunicorn master is gone")
        os.kill(os.getpid(), signal.SIGKILL)
