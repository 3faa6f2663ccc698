"""The engine's process: its port, start, output and end. It decides nothing about requests.

Invariants:

* The port is reserved before the engine starts, and stays reserved until it has ended.
* ``on_exit`` is called exactly once, from the loop, after all output was read.
* An engine does not outlive its worker (``parent_death.py``).
* When memory runs out, the kernel ends an engine before its worker, and a worker before the supervisor.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Final

from protocol.runtime import logs, memory
from protocol.runtime.accounts import check_user
from protocol.runtime.loop import Loop, Timer
from workers.backends.base import Backend
from workers.backends.engine_facts import EngineProgress
from workers.engine import process_usage
from workers.engine.engine_group import EngineGroup
from workers.engine.exit_cause import EngineExit, ExitCause, exit_cause, memory_kills, signal_name
from workers.engine.limited_start import limited_command
from workers.engine.output_reader import OutputReader
from workers.engine.parent_death import bound_to_this_process, find_setpriv
from workers.engine.port import ReservedPort
from workers.engine.process_usage import ProcessUsage

ENGINE_DESCRIPTORS: Final = 1024
"""The soft limit that Linux gives a process by default."""
_SETPRIV: Final = find_setpriv()


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
        self._loop, self._backend = loop, backend
        self._on_exit = on_exit
        self._kill_timer: Timer | None = None
        self._kill_sent = False
        self._memory_kills = memory_kills()
        limits = backend.spec.limits
        self.group = EngineGroup(limits.cpus, backend.memory_limit)
        account = check_user(limits.user)
        inherited = account.environment(os.environ) if account else dict(os.environ)
        self.reserved_port = ReservedPort(shared=backend.shares_port, user=account.user if account else None)
        try:
            self.port = self.reserved_port.number
            self.command = backend.command(self.port)
            limited = self.group.folders or limits.cpus or limits.nice or limits.user
            with _batch_scheduling(), _thread_stacks(backend.stack_bytes):
                self._process = subprocess.Popen(
                    limited_command(self.command, limits, self.group.process_files)
                    if limited
                    else bound_to_this_process(self.command, _SETPRIV),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=backend.environment(inherited),
                    cwd=backend.working_directory,
                    bufsize=0,
                )
        except BaseException:
            self.reserved_port.release()
            self.group.remove()
            raise
        self.pid = self._process.pid
        memory.raise_oom_score(self.pid)
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

    def is_listening(self) -> bool:
        """See :meth:`~workers.engine.port.ReservedPort.is_listening`."""
        return self.reserved_port.is_listening()

    @property
    def control_groups(self) -> list[str]:
        """The folders of its own control groups."""
        return list(map(str, self.group.folders))

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
        if self._backend.ends_group:
            kill_group_members()
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._output.drain()
        for pipe in self._pipes:
            pipe.close()
        self.reserved_port.release()
        reason = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
        group_kills = self.group.kernel_kills()
        over_limit = group_kills > 0
        self.group.remove()
        kills = group_kills + memory_kills() - self._memory_kills
        cause = exit_cause(code, kill_sent=self._kill_sent, memory_kills=kills)
        if cause is ExitCause.MEMORY and not over_limit:
            reason += " because memory ran out"
        elif cause is ExitCause.KILLED:
            reason += ", which lemonbus did not send"
        elif cause is ExitCause.FILE:
            reason += ", probably because its model's file was truncated or could not be read"
        self._on_exit(EngineExit(reason, "\n".join(self._output.last_lines), cause, over_limit=over_limit))

    def stop(self) -> None:
        """Ask it to end; kill it if it has not ended within the backend's ``stop_seconds``."""
        if self._kill_timer is None:
            self.signal(self._backend.stop_signal)
            # A stopped process sees SIGTERM only after SIGCONT.
            self.signal(signal.SIGCONT)
            self._kill_timer = self._loop.call_later(self._backend.stop_seconds, lambda: self.signal(signal.SIGKILL))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended already."""
        self._kill_sent = self._kill_sent or number == signal.SIGKILL
        self._process.send_signal(number)

    def resident(self) -> int:
        """Return its resident bytes, 0 if it has ended."""
        return process_usage.resident(self.pid)

    def memory_used(self) -> int:
        """Return the bytes that its process tree uses, pages of files left out; 0 if it has ended."""
        return process_usage.used_by_tree(self.pid)

    def proportional(self) -> int:
        """Return the bytes that its process tree uses with mapped files; see :func:`~workers.engine.process_usage.proportional_of_tree`."""
        return process_usage.proportional_of_tree(self.pid)

    def resident_of_tree(self) -> int:
        """Return the resident bytes of its process tree."""
        return process_usage.resident_of_tree(self.pid)

    def usage(self) -> ProcessUsage:
        """Return what its process tree has used so far."""
        return process_usage.usage_of_tree(self.pid)


def kill_group_members() -> None:
    """Kill every other process of the group that this process leads: what an engine has started and left behind."""
    own = os.getpid()
    if os.getpgrp() != own:
        return  # a test, or a shell's job: the group has other members
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(pid) != own and os.getpgid(int(pid)) == own:
                os.kill(int(pid), signal.SIGKILL)


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
