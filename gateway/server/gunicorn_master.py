"""gunicorn, configured in code: one master, several workers, on a listener that the supervisor bound."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import time
from typing import Any, Final

import gevent
import msgspec
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.config import Config

from gateway.app import create_app
from gateway.bus.session import SupervisorSession, new_gateway_id
from gateway.bus.sockets import GatewayBus
from gateway.http.body_memory import BodyMemory
from gateway.internal_errors import install_error_handler
from gateway.requests.spool import Spool
from gateway.server import gunicorn_log
from gateway.server.gunicorn_log import GunicornLogger
from gateway.server.gunicorn_worker import GunicornWorker
from gateway.server.restart_backoff import RestartBackoff
from protocol.config.settings import Settings
from protocol.runtime import logs, memory
from protocol.runtime.process_context import HEARTBEAT_VARIABLE, ProcessContext
from protocol.runtime.process_exit import exit_immediately
from protocol.wire import endpoints

HEARTBEAT_TIMEOUT_S: Final = 120
"""Seconds without a heartbeat after which gunicorn aborts a worker.

This only covers what the supervisor's Ping cannot see.

The supervisor's Ping finds a worker that hangs within ``peer_silence``. A timeout of a few seconds would end workers
that just got no processor time on a machine under load.
"""
KEEP_ALIVE_S: Final = 75
MAX_CONNECTIONS: Final = 10_000
_GRACE_MARGIN_S: Final = 5
_ALIVE: Final = b"."
_STOPPING: Final = b"s"
"""Heartbeats for the supervisor: this process iterates; it waits for its workers to end, and will not iterate again."""


class GunicornMaster(Arbiter):  # type: ignore[misc]
    """The gunicorn master. It outlives supervisors, and ends when their keeper does."""

    def __init__(self, app: GunicornApplication) -> None:
        """Watch the keeper's process, and prepare the heartbeat for the supervisors."""
        super().__init__(app)
        self._heartbeat_fd = app.heartbeat_fd
        self._process_context = app.process_context
        self._keeper = os.pidfd_open(app.process_context.keeper)
        self._retiring = False
        """Whether its workers were told to end, so that their ends are not failures."""
        self._backoff = RestartBackoff()
        self._woken, self._wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._keeper, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def init_signals(self) -> None:
        """Let signals end the wait below."""
        super().init_signals()
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def wait_for_signals(self, timeout: float = 1.0) -> list[int]:
        """Write a heartbeat, then wait for a signal. The keeper's death counts as SIGTERM."""
        self._beat(_ALIVE)
        if self._retiring and not self.WORKERS:
            raise StopIteration
        timeout = min(timeout, self._backoff.left(time.monotonic()) or timeout)
        for descriptor, _ in self._poll.poll(timeout * 1000):
            if descriptor == self._woken:
                os.read(self._woken, 512)
            else:
                logs.get_logger().error("the keeper is gone")
                return [signal.SIGTERM]
        arrived: list[int] = super().wait_for_signals(0.001)
        return arrived

    def spawn_workers(self) -> None:
        """Fork the missing workers, or try again later: otherwise gunicorn would end, and the other workers with it."""
        if self._backoff.left(time.monotonic()):
            return
        self._read_log_level()
        try:
            super().spawn_workers()
        except OSError as problem:  # too many processes or open files, no memory, no space for the worker's file
            pause = self._backoff.failed(time.monotonic())
            why = problem.strerror or str(problem)
            logs.get_logger().error("gateway worker could not be started", reason=why, restart_in=pause)

    def _read_log_level(self) -> None:
        """Use the present level, which may have changed since the start: this process is not on the bus, where others are told."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):  # a full disk, for example: the level stays
            logs.set_level(self._process_context.settings().log_level)

    def worker_ended(self, pid: int) -> None:
        """Note that a worker was reaped. If it died soon after its start, the next one may have to wait."""
        pause = self._backoff.ended(pid, time.monotonic())
        if pause and not self._retiring:
            logs.get_logger().error("gateway worker died soon after its start", gateway_pid=pid, restart_in=pause)

    def spawn_worker(self) -> int:
        """Fork while SIGTERM is blocked: it would be lost if it arrived before the worker has its own handlers."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            pid: int = super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        self._backoff.started(pid, time.monotonic())
        return pid

    def handle_winch(self) -> None:
        """Accept no more connections, and end with the last request: another master has taken over."""
        self._retiring = True
        self.num_workers = 0
        self.kill_workers(signal.SIGTERM)

    def stop(self, graceful: bool = True) -> None:
        """Stop the workers. The supervisor is told not to expect heartbeats meanwhile."""
        self._retiring = True
        self._beat(_STOPPING)
        super().stop(graceful)

    def _beat(self, heartbeat: bytes) -> None:
        if self._heartbeat_fd >= 0:
            # If the pipe is full, the supervisor is busy, and what is in the pipe suffices. Between two supervisors,
            # and when another release takes over, it has no reader: Python ignores SIGPIPE, and the next supervisor
            # opens it again.
            with contextlib.suppress(OSError):
                os.write(self._heartbeat_fd, heartbeat)

    def forget(self) -> None:
        """Close the master's descriptors in a worker."""
        for descriptor in (self._keeper, self._woken, self._wake, self._heartbeat_fd):
            if descriptor >= 0:
                os.close(descriptor)


class GunicornApplication(BaseApplication):  # type: ignore[misc]
    """The application as gunicorn sees it."""

    cfg: Config

    def __init__(self, process_context: ProcessContext, listener: int, heartbeat_fd: int = -1) -> None:
        """Serve on the file descriptor ``listener``. Write heartbeats to ``heartbeat_fd``, if there is one."""
        self.heartbeat_fd = heartbeat_fd
        self.process_context = process_context
        self.settings: Settings = process_context.settings()
        self.listener = listener
        super().__init__()

    def load_config(self) -> None:
        """Set the options that differ from gunicorn's defaults."""
        chosen: dict[str, Any] = {
            "bind": f"fd://{self.listener}",
            "worker_class": GunicornWorker,
            "workers": self.settings.gateways,
            "worker_connections": MAX_CONNECTIONS,
            "timeout": HEARTBEAT_TIMEOUT_S,
            "graceful_timeout": math.ceil(self.settings.grace) + _GRACE_MARGIN_S,
            "keepalive": KEEP_ALIVE_S,
            "logger_class": GunicornLogger,
            "control_socket_disable": True,
            "worker_tmp_dir": str(self.process_context.runtime),
            "proc_name": "lemonbus-gateway",
            # No forwarding header is trusted, so there is no list to compare the client with, which saves time.
            "forwarded_allow_ips": "*",
            "secure_scheme_headers": {},
            "forwarder_headers": "",
            "post_fork": post_fork,
            "child_exit": child_exit,
            "post_worker_init": self.post_worker_init,
            "worker_exit": worker_exit,
        }
        for name, value in chosen.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Return the WSGI application (in the worker, after the fork)."""
        node = self.process_context.node
        gateway, proof = new_gateway_id(node)
        spool = Spool(endpoints.spool(self.process_context.runtime), gateway, self.settings.spool_limit)
        self.session = SupervisorSession(gateway, self.settings, spool, node, proof)
        return create_app(self.session)

    def post_worker_init(self, worker: GunicornWorker) -> None:
        """Open the bus, and watch the keeper and the master: this process ends with them."""
        session = worker.session = self.session
        worker.body_memory = BodyMemory(session.settings.body_memory)
        session.on_shutdown = worker.begin_shutdown
        session.on_pause, session.on_resume = worker.pause_accepting, worker.resume_accepting
        worker.bus = GatewayBus(session, self.process_context)
        install_error_handler(gevent.get_hub())
        worker.watch_process(self.process_context.keeper, session.keeper_ended)
        worker.watch_process(worker.ppid, worker.master_died)
        memory.tune_gc()
        logs.get_logger().info("gateway worker up", gateway=session.id)

    def run(self) -> None:
        """Serve until the master is stopped. The workers share the memory of everything imported here."""
        memory.tune_gc()
        try:
            master = GunicornMaster(self)
        except ProcessLookupError:
            logs.get_logger().error("the keeper is gone")
            return
        master.run()


def post_fork(master: GunicornMaster, _worker: GunicornWorker) -> None:
    """Close the master's descriptors in a new worker. SIGTERM ends it until it has its own handlers."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    master.forget()


def child_exit(master: GunicornMaster, worker: GunicornWorker) -> None:
    """Tell the master that a worker was reaped."""
    master.worker_ended(worker.pid)


def worker_exit(_master: GunicornMaster, worker: GunicornWorker) -> None:
    """Close the bus and remove the spool files, in the worker. gunicorn also calls this in the master.

    A request may still run if an exception ended ``run``. It must not go on with a closed bus, and at the end of the
    interpreter it would. So the process ends here.
    """
    bus = getattr(worker, "bus", None)
    if bus is None:
        return
    worker.session.spool.sweep()
    bus.close()
    if worker.serving:
        os._exit(1)
    if isinstance(end := sys.exception(), SystemExit):
        exit_immediately(_exit_code(end))


def main() -> None:
    """Serve on the listener in ``LEMONBUS_LISTEN_FD``."""
    process_context = ProcessContext.from_environment()
    settings = process_context.settings()
    logs.configure("gateway", settings.log_level, settings.log_format, process_context.node)
    gunicorn_log.install_library_log_handler()
    heartbeat_fd = int(os.environ.get(HEARTBEAT_VARIABLE, "-1"))
    try:
        GunicornApplication(process_context, int(os.environ["LEMONBUS_LISTEN_FD"]), heartbeat_fd).run()
    except SystemExit as end:
        exit_immediately(_exit_code(end))


def _exit_code(end: SystemExit) -> int:
    return end.code if isinstance(end.code, int) else int(end.code is not None)
