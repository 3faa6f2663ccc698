"""Child processes: started from the main thread, in sessions of their own, ended as whole groups.

A child is started by module name with the server's process context in its environment.  When it ends, the rest of its
process group is killed before its pid is released, so that no engine outlives its worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext

OnEnded = Callable[[str], None]


class ChildProcess:
    """One child process."""

    def __init__(self, process: subprocess.Popen[bytes] | None, role: str) -> None:
        """``role``: gateway, worker or job. ``process`` is None for one that could not be started."""
        self.process = process
        self.role = role

    @property
    def pid(self) -> int:
        """Its pid, which is also its group's and its session's; 0 if there is none."""
        return self.process.pid if self.process else 0


class ChildProcesses:
    """Starts, watches and ends the processes of a server."""

    def __init__(self, loop: Loop, process_context: ProcessContext) -> None:
        """No child runs yet."""
        self._loop = loop
        self._process_context = process_context
        self._children: dict[int, ChildProcess] = {}
        self._given_up: set[int] = set()

    def __len__(self) -> int:
        """Return the number of children that run, without those that were given up."""
        return len(self._children) - len(self._given_up)

    def start(
        self,
        role: str,
        module: str,
        on_ended: OnEnded,
        extra: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> ChildProcess:
        """Start ``python -m module``; ``on_ended(why)`` is called once when it has ended (``exit 1``, ``SIGKILL``…).

        One that cannot be started (too many processes, no memory) has ended at once.
        """
        environment = {**os.environ, **self._process_context.environment(), **(extra or {})}
        try:
            with _sighup_blocked():
                process = subprocess.Popen(
                    [sys.executable, "-m", module],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=2,
                    stderr=2,
                    start_new_session=True,
                    pass_fds=pass_fds,
                )
        except OSError as problem:
            why = f"it could not be started: {problem.strerror}"
            self._loop.call_later(0.0, lambda: on_ended(why))
            return ChildProcess(None, role)
        child = self._children[process.pid] = ChildProcess(process, role)
        self._loop.on_death(process.pid, lambda: self._ended(process, on_ended))
        return child

    def _ended(self, process: subprocess.Popen[bytes], on_ended: OnEnded) -> None:
        _signal_group(process.pid, signal.SIGKILL)
        code = process.wait()
        del self._children[process.pid]
        self._given_up.discard(process.pid)
        on_ended(f"exit {code}" if code >= 0 else signal.Signals(-code).name)

    def terminate(self, child: ChildProcess) -> None:
        """Ask a child (not its group) to end."""
        if child.process and child.pid in self._children:
            child.process.send_signal(signal.SIGTERM)

    def kill(self, child: ChildProcess) -> None:
        """End a child and all that is in its group, now."""
        if child.pid in self._children:
            _signal_group(child.pid, signal.SIGKILL)

    def give_up(self, child: ChildProcess) -> None:
        """Kill a child, and do not count it as running any more: one that waits for a dead disk may never end."""
        self.kill(child)
        if child.pid in self._children:
            self._given_up.add(child.pid)

    def kill_all(self) -> None:
        """End every child and its group, now."""
        for pid in self._children:
            _signal_group(pid, signal.SIGKILL)


@contextlib.contextmanager
def _sighup_blocked() -> Iterator[None]:
    """Let what is started here inherit SIGHUP blocked: one sent to a whole control group is the supervisor's to answer."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
