"""The engine's process: its port, start, output and end. It decides nothing about requests.

Invariants:

* The port is reserved before the engine starts, and stays reserved until it has ended.
* ``on_exit`` is called exactly once, from the loop, after all output was read.
* An engine does not outlive its worker (``parent_death.py``).
* When memory runs out, the kernel ends an engine before its worker, and a worker before the supervisor.
"""

from __future__ import annotations

import contextlib
import enum
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from workers.backends.base import Backend, EngineProgress
from workers.engine import process_usage
from workers.engine.output_reader import OutputReader
from workers.engine.parent_death import bound_to_this_process, find_setpriv
from workers.engine.port import ReservedPort
from workers.engine.process_usage import ProcessUsage

KILL_DELAY_S: Final = 2.0
"""How long an engine has to end after SIGTERM before it is killed (llama-server needs 0.06 s)."""
OOM_SCORE_STEP: Final = 300
"""Added to a worker's score for the out-of-memory killer, and again to its engine's."""
MAX_OOM_SCORE: Final = 1000
ENGINE_DESCRIPTORS: Final = 1024
"""The soft limit that Linux gives a process by default."""
CRASH_SIGNALS: Final = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGTRAP, signal.SIGSYS}
)
_SHELL_SIGNAL_BASE: Final = 128
"""A shell whose program was killed by signal N exits with 128 + N."""
_KERNEL_COUNTERS: Final = Path("/proc/vmstat")
_SETPRIV: Final = find_setpriv()


class ExitCause(enum.Enum):
    """Why an engine ended, according to its exit status and the kernel's counters."""

    CRASH = enum.auto()
    """A signal that a process gets for something it did itself."""
    MEMORY = enum.auto()
    """The kernel killed it because memory ran out."""
    OTHER = enum.auto()


class EngineExit(NamedTuple):
    """How an engine ended."""

    reason: str
    """``was killed by SIGSEGV``, ``exited with code 1``."""
    output: str
    """Its last lines of output, for administrators."""
    cause: ExitCause


class EngineProcess:
    """One engine process, from its start to its end."""

    def __init__(
        self,
        loop: Loop,
        backend: Backend,
        log: logs.Logger,
        label: Callable[[], str],
        on_progress: Callable[[EngineProgress], None],
        on_exit: Callable[[EngineExit], None],
    ) -> None:
        """Start the engine; raises OSError if it cannot be started.

        ``label``: see :class:`~workers.engine.output_reader.OutputReader`.
        """
        self._loop = loop
        self._on_exit = on_exit
        self._kill_timer: Timer | None = None
        self._kill_sent = False
        self._memory_kills = memory_kills()
        self.reserved_port = ReservedPort(shared=backend.shares_port)
        try:
            self.port = self.reserved_port.number
            self.command = backend.command(self.port)
            with _batch_scheduling(), _thread_stacks(backend.stack_bytes):
                self._process = subprocess.Popen(
                    bound_to_this_process(self.command, _SETPRIV),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=backend.environment(dict(os.environ)),
                    bufsize=0,
                )
        except BaseException:
            self.reserved_port.release()
            raise
        self.pid = self._process.pid
        raise_oom_score(self.pid)
        limit_descriptors(self.pid)
        self._pipes = [pipe for pipe in (self._process.stdout, self._process.stderr) if pipe is not None]
        fds = [pipe.fileno() for pipe in self._pipes]

        def is_progress(line: bytes) -> bool:
            progress = backend.progress(line)
            if progress is not None:
                on_progress(progress)
            return progress is not None

        self._output = OutputReader(loop, log, self.pid, label, fds, backend.parse, is_progress)
        loop.on_death(self.pid, self._exited)

    @property
    def url(self) -> str:
        """The address at which it answers."""
        return f"http://127.0.0.1:{self.port}"

    def watch_memory_kills(self) -> None:
        """Note what the kernel has killed so far: if it kills another process and this one is gone, it was this one."""
        self._memory_kills = memory_kills()

    def read_output(self) -> None:
        """Log what it wrote so far, for :class:`~workers.engine.line_attribution.LineAttribution`."""
        self._output.read_now()

    def _exited(self) -> None:
        code = self._process.wait()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._output.drain()
        for pipe in self._pipes:
            pipe.close()
        self.reserved_port.release()
        reason = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
        cause = exit_cause(code, kill_sent=self._kill_sent, memory_kills=memory_kills() - self._memory_kills)
        if cause is ExitCause.MEMORY:
            reason += " because memory ran out"
        self._on_exit(EngineExit(reason, "\n".join(self._output.last_lines), cause))

    def stop(self) -> None:
        """Ask it to end; kill it if it has not ended within two seconds."""
        if self._kill_timer is None:
            self.signal(signal.SIGTERM)
            # A stopped process sees SIGTERM only after SIGCONT.
            self.signal(signal.SIGCONT)
            self._kill_timer = self._loop.call_later(KILL_DELAY_S, lambda: self.signal(signal.SIGKILL))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended already."""
        self._kill_sent = self._kill_sent or number == signal.SIGKILL
        self._process.send_signal(number)

    def resident(self) -> int:
        """Return its resident bytes, 0 if it has ended."""
        return process_usage.resident(self.pid)

    def resident_of_tree(self) -> int:
        """Return the resident bytes of its process tree."""
        return process_usage.resident_of_tree(self.pid)

    def usage(self) -> ProcessUsage:
        """Return what its process tree has used so far."""
        return process_usage.usage_of_tree(self.pid)


def exit_cause(code: int, *, kill_sent: bool, memory_kills: int) -> ExitCause:
    """Return why a process ended with ``code``, negative for a signal. ``memory_kills``: how many the kernel has killed meanwhile."""
    number = -code if code < 0 else code - _SHELL_SIGNAL_BASE
    if number in CRASH_SIGNALS:
        return ExitCause.CRASH
    return ExitCause.MEMORY if number == signal.SIGKILL and memory_kills and not kill_sent else ExitCause.OTHER


def memory_kills() -> int:
    """Return how many processes of this machine the kernel has killed because memory ran out; 0 if it does not say."""
    with contextlib.suppress(OSError, ValueError):
        for line in _KERNEL_COUNTERS.read_bytes().splitlines():
            name, _, count = line.partition(b" ")
            if name == b"oom_kill":
                return int(count)
    return 0


def raise_oom_score(pid: int) -> None:
    """Make the out-of-memory killer prefer a process to the one that started it. This needs no privilege."""
    file = Path(f"/proc/{pid}/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        file.write_text(str(min(MAX_OOM_SCORE, int(file.read_text()) + OOM_SCORE_STEP)))


def limit_descriptors(pid: int) -> None:
    """Set a process's soft limit of descriptors to the usual one: ours is higher, and its program may use select()."""
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(soft, ENGINE_DESCRIPTORS), hard))


@contextlib.contextmanager
def _thread_stacks(size: int) -> Iterator[None]:
    """Give the threads of started programs stacks of ``size`` bytes, or what the hard limit allows; 0 changes nothing.

    The C library takes the size from this limit when a program starts. Without a limit, it takes 2 MiB.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    wanted = size if hard == resource.RLIM_INFINITY else min(size, hard)
    if soft != resource.RLIM_INFINITY:
        wanted = max(wanted, soft)
    if not size or wanted == soft:
        yield
        return
    resource.setrlimit(resource.RLIMIT_STACK, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


@contextlib.contextmanager
def _batch_scheduling() -> Iterator[None]:
    """Start processes with the kernel's batch policy (sched(7)), which is inherited and needs no privilege.

    An engine computes in a few threads, and many other threads write its responses: each token wakes all of them. Under
    the ordinary policy they interrupt the computation for every token (``docs/performance.md`` has the figures). Under
    the batch policy they wait for an idle processor or for the end of a time slice.
    """
    if not _change_scheduling_policy(os.SCHED_OTHER, os.SCHED_BATCH):
        yield
        return
    try:
        yield
    finally:
        _change_scheduling_policy(os.SCHED_BATCH, os.SCHED_OTHER)


def _change_scheduling_policy(old: int, new: int) -> bool:
    """Change this thread's policy; return False if an administrator chose another one, or a sandbox forbids it."""
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
