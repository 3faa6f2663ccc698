"""The gunicorn masters of one listener: one that accepts connections, and replaced ones that end with their last requests.

The listener stays open in this process, so that no connection is refused while none of them runs.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from protocol.failures import Code, Failure
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.processes.child_processes import ChildProcess, ChildProcesses
from supervisor.processes.keeper_children import KeeperChild
from supervisor.scheduler.backoff import Backoff, BackoffPolicy

REMIND_S: Final = 1.0

log = logs.get_logger()


class GunicornMasters:
    """Keeps one master running."""

    def __init__(self, loop: Loop, listen_fd: int, start: Callable[[], None], closing: Callable[[], bool]) -> None:
        """None runs yet. ``start`` is called after a pause when the present master has ended by itself.

        ``closing`` returns whether none is to be started again.
        """
        self._loop, self._listen_fd, self._start_again, self._closing = loop, listen_fd, start, closing
        self._backoff = Backoff(BackoffPolicy(0.1, 5.0, 10**6, 60.0))
        self.present: ChildProcess | None = None
        """The one that accepts connections, from its start to its end."""
        self.former: list[ChildProcess] = []
        """Others that still accept connections; :meth:`retire` ends that."""
        self._retired: list[ChildProcess] = []
        self.on_end: Callable[[], None] = lambda: None
        """Called when one has ended."""

    def __len__(self) -> int:
        """Return how many masters run."""
        return len(self._all())

    def _all(self) -> list[ChildProcess]:
        return [*self.former, *self._retired, *([self.present] if self.present is not None else [])]

    def start(
        self, processes: ChildProcesses, variables: Mapping[str, str] | None = None, descriptors: Sequence[int] = ()
    ) -> None:
        """Start the present one, with these environment variables and descriptors besides the listener."""
        environment = {"LEMONBUS_LISTEN_FD": str(self._listen_fd), **(variables or {})}
        started: list[ChildProcess] = []
        self.present = processes.start(
            "gateway",
            "gateway",
            lambda why: self._ended(started[0], why),
            environment,
            [self._listen_fd, *descriptors],
        )
        started.append(self.present)

    def adopt(self, processes: ChildProcesses, survivor: KeeperChild, *, present: bool) -> ChildProcess:
        """Take over a master that an earlier supervisor started: the present one, or a former one."""
        child = processes.adopt(survivor, lambda why: self._ended(child, why))
        if present:
            self.present = child
        else:
            self.former.append(child)
        return child

    def retire(self, child: ChildProcess) -> None:
        """Let the present master or a former one end with its last request. Another one accepts connections from now on."""

        def remind() -> None:
            # Repeatedly: a master that is still starting ignores it.
            if child in self._retired:
                child.signal(signal.SIGWINCH)
                self._loop.call_later(REMIND_S, remind)

        if child is self.present:
            self.present = None
        else:
            self.former.remove(child)
        self._retired.append(child)
        log.info("gateway replaced: it ends with its last request", gateway_pid=child.pid)
        remind()

    def ready(self) -> None:
        """A gateway of the present one can serve: earlier failures are forgotten."""
        self._backoff.ready()

    def terminate(self) -> None:
        """Ask every master to end within the grace period."""
        for child in self._all():
            child.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every master and its gateways, now."""
        for child in self._all():
            child.signal(signal.SIGKILL, group=True)

    def _ended(self, child: ChildProcess, why: str) -> None:
        for others in (self.former, self._retired):
            if child in others:
                others.remove(child)
                log.info("replaced gateway gone", reason=why)
        if child is self.present:
            self.present = None
            if not self._closing():
                now = self._loop.now()
                self._backoff.load_failed(Failure(Code.INTERNAL, why), now)
                pause = self._backoff.pause(now)
                log.error("gateway died", reason=why, restart_in=pause)
                self._loop.call_later(pause, self._restart)
        self.on_end()

    def _restart(self) -> None:
        if self.present is None and not self._closing():
            self._start_again()
