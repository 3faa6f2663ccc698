"""The engine's process: its port, start, output, death and end. It decides nothing about requests."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from workers.backends.base import Backend
from workers.engine.output_reader import OutputReader
from workers.engine.parent_death import bound_to_this_process, find_setpriv

KILL_DELAY_S: Final = 2.0
"""SIGTERM ends llama-server in 0.06 s; after this long it is killed."""
_SETPRIV: Final = find_setpriv()
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class EngineExit(NamedTuple):
    """How an engine ended."""

    how: str
    """``was killed by SIGKILL``, ``exited with code 1``."""
    last: str
    """Its last lines of output, for administrators."""


class EngineProcess:
    """One engine process, from its start to its death."""

    def __init__(
        self,
        loop: Loop,
        backend: Backend,
        log: logs.Logger,
        label: Callable[[], str | None],
        on_death: Callable[[EngineExit], None],
    ) -> None:
        """Start the engine; raises OSError if that cannot be. ``on_death`` is called once, from the loop."""
        self._loop = loop
        self._on_death = on_death
        self._kill_timer: Timer | None = None
        # Bound first and made shareable after: the engine can bind the port too, nobody else is ever given it.
        self._reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._reserved.bind(("127.0.0.1", 0))
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self.port: int = self._reserved.getsockname()[1]
            self.command = backend.command(self.port)
            with _batch_scheduling():
                self._process = subprocess.Popen(
                    bound_to_this_process(self.command, _SETPRIV),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=backend.environment(dict(os.environ)),
                    bufsize=0,
                )
        except BaseException:
            self._reserved.close()
            raise
        self.pid = self._process.pid
        self._pipes = [pipe for pipe in (self._process.stdout, self._process.stderr) if pipe is not None]
        self._output = OutputReader(loop, log, self.pid, label, [pipe.fileno() for pipe in self._pipes], backend.parse)
        loop.on_death(self.pid, self._died)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def _died(self) -> None:
        code = self._process.wait()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._output.drain()
        for pipe in self._pipes:
            pipe.close()
        self._reserved.close()
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
        self._on_death(EngineExit(how, "\n".join(self._output.last)))

    def stop(self) -> None:
        """Ask it to end; kill it if it has not within two seconds."""
        if self._kill_timer is None:
            self.signal(signal.SIGTERM)
            # A stopped process does not see SIGTERM: it gets on, and ends.
            self.signal(signal.SIGCONT)
            self._kill_timer = self._loop.call_later(KILL_DELAY_S, lambda: self.signal(signal.SIGKILL))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless it is dead already."""
        self._process.send_signal(number)

    def resident(self) -> int:
        """Return its resident bytes, 0 if it is gone."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:  # noqa: PTH123 - no pathlib in a loop
                return int(file.read().split()[1]) * _PAGE
        except (OSError, IndexError, ValueError):
            return 0

    def cpu_seconds(self) -> float:
        """Return the processor time that its process tree had or waited for so far.

        Waiting counts: an engine that a busy machine starves is not silent.  One that is stopped or asleep has
        neither.
        """
        total, seen = 0.0, [self.pid]
        for pid in seen:
            total += _cpu_seconds_of(pid)
            seen += _children(pid)
        return total


@contextlib.contextmanager
def _batch_scheduling() -> Iterator[None]:
    """Let processes that are started here take no processor from one that computes, only from its turn's end on.

    An engine computes in few threads, and a crowd of others writes its answers: each token wakes all of them.  Let in at
    once, they stop the computation for every token (``ARCHITECTURE.md`` has the figures).  The kernel's batch policy
    (sched(7)) has them wait for an idle processor or the end of a turn; it wants no privilege, and is inherited.
    """
    if not _change_scheduling_policy(os.SCHED_OTHER, os.SCHED_BATCH):
        yield
        return
    try:
        yield
    finally:
        _change_scheduling_policy(os.SCHED_BATCH, os.SCHED_OTHER)


def _change_scheduling_policy(old: int, new: int) -> bool:
    """Change this thread's policy; return False if it has another one (somebody chose it), or a sandbox forbids it."""
    try:
        if os.sched_getscheduler(0) != old:
            return False
        os.sched_setscheduler(0, new, os.sched_param(0))
    except OSError:
        return False
    return True


def signal_name(number: int) -> str:
    """Return a signal's name, or its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _cpu_seconds_of(pid: int) -> float:
    total = 0
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as file:  # noqa: PTH123
                ran, waited, _ = file.read().split()
            total += int(ran) + int(waited)
    except (OSError, ValueError):
        pass  # a thread, or all of them, ended meanwhile
    return total / 1e9


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123
            return [int(child) for child in file.read().split()]
    except (OSError, ValueError):
        return []
