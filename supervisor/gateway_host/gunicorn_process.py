"""The gunicorn masters of a host: one that serves, and former ones that end with their last requests."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Final

from protocol.failures import Code, Failure
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.scheduler.backoff import Backoff, BackoffPolicy

_REMIND_S: Final = 1.0
log = logs.get_logger()


class GunicornProcess:
    """Keeps a master running with the latest settings."""

    def __init__(self, loop: Loop, listen_fd: int, ended: Callable[[], None]) -> None:
        """Start none yet. ``ended`` is called whenever a master has ended that is not to be replaced."""
        self._loop, self._listen_fd, self._ended = loop, listen_fd, ended
        self._backoff = Backoff(BackoffPolicy(0.1, 5.0, 10**6, 60.0))
        self._context: ProcessContext | None = None
        self._present: tuple[ChildProcesses, ChildProcess] | None = None
        self._retired: list[tuple[ChildProcesses, ChildProcess]] = []
        self._stopping = False

    def __len__(self) -> int:
        """Return how many masters run."""
        return len(self._retired) + (self._present is not None)

    def start(self, context: ProcessContext) -> None:
        """Start a master for this run of the server, in place of the present one, which ends with its last request."""
        self._context = context
        if self._present is not None:
            self._retired.append(self._present)
            self._remind(self._present)
        self._start()

    def _start(self) -> None:
        if self._context is None or self._stopping:
            return
        processes = ChildProcesses(self._loop, self._context)
        environment = {"LEMONBUS_LISTEN_FD": str(self._listen_fd)}
        started: list[ChildProcess] = []
        child = processes.start(
            "gateway", "gateway", lambda why: self._master_ended(started[0], why), environment, [self._listen_fd]
        )
        started.append(child)
        self._present = (processes, child)

    def _remind(self, former: tuple[ChildProcesses, ChildProcess]) -> None:
        """Let a master accept no more connections. Repeatedly: one that is still starting ignores it."""
        if former in self._retired:
            former[1].signal(signal.SIGWINCH)
            self._loop.call_later(_REMIND_S, lambda: self._remind(former))

    def _master_ended(self, child: ChildProcess, why: str) -> None:
        self._retired = [each for each in self._retired if each[1] is not child]
        if self._present is not None and self._present[1] is child:
            self._present = None
            if not self._stopping:
                now = self._loop.now()
                self._backoff.load_failed(Failure(Code.INTERNAL, why), now)
                pause = self._backoff.pause(now)
                log.error("gateway died", why=why, restart_in=pause)
                self._loop.call_later(pause, self._restart)
                return
        self._ended()

    def _restart(self) -> None:
        if self._present is None:
            self._start()

    def stop(self) -> None:
        """Let all masters end within the grace period, and start none again."""
        self._stopping = True
        for processes, child in self._all():
            processes.terminate(child)

    def kill(self) -> None:
        """End all masters now."""
        for processes, child in self._all():
            processes.kill(child)

    def _all(self) -> list[tuple[ChildProcesses, ChildProcess]]:
        return [*self._retired, *([self._present] if self._present is not None else [])]
