"""Child processes: started from the main thread, in sessions of their own, ended as whole groups.

A child is started by module name with the server's process context and its role in its environment. When it ends, the
rest of its process group is killed before its pid is released, so that no engine outlives its worker. A process that
was forked by the fork server, or started by an earlier supervisor, is a child of the keeper, which does the same and
reports its end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from protocol.runtime.loop import Loop
from protocol.runtime.process_context import FINGERPRINT_VARIABLE, PEER_VARIABLE, ROLE_VARIABLE, ProcessContext
from supervisor.keeper import process_tree
from supervisor.keeper.channel import Channel
from supervisor.processes.fork_orders import ForkCallbacks, ForkServerClient
from supervisor.processes.keeper_children import KeeperChild

REPORT_TIMEOUT_S: Final = 1.0
"""How long the keeper may take to report how one of its children has ended."""

OnEnded = Callable[[str], None]


class ChildProcess:
    """One process: a child of this supervisor, or of the keeper."""

    def __init__(self, role: str) -> None:
        """``role``: gateway, worker or job. There is no process yet."""
        self.role = role
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper_child: KeeperChild | None = None
        self._due: signal.Signals | None = None
        """What to send it as soon as it has started."""

    @property
    def pid(self) -> int:
        """Its pid, which is also its group's and its session's; 0 if there is none (yet)."""
        return self._process.pid if self._process else self._keeper_child.pid if self._keeper_child else 0

    def begin(self, process: subprocess.Popen[bytes] | KeeperChild) -> None:
        """Be this process from now on: one that this supervisor started, or a child of the keeper."""
        if isinstance(process, KeeperChild):
            self._keeper_child = process
        else:
            self._process = process
        if self._due is not None:
            self.signal(self._due, group=self._due == signal.SIGKILL)

    def signal_when_started(self, number: signal.Signals) -> None:
        """Send it a signal as soon as it has started. SIGKILL goes to its group, and replaces any other signal."""
        if self._due != signal.SIGKILL:
            self._due = number

    @property
    def to_be_killed(self) -> bool:
        """Whether to kill it as soon as it has started."""
        return self._due == signal.SIGKILL

    def is_reaped(self) -> bool:
        """Return whether its pid may belong to another process by now."""
        if self._keeper_child is not None:
            return not self._keeper_child.is_running()
        return self._process is None or self._process.returncode is not None

    def release(self, loop: Loop) -> None:
        """Close the descriptor of a child of the keeper that has ended."""
        if self._keeper_child is not None:
            loop.on_readable(self._keeper_child.pidfd, None)
            self._keeper_child.close()
            self._keeper_child = None

    def signal(self, number: signal.Signals, *, group: bool = False) -> None:
        """Send a signal to it, or to its whole group, if it was not reaped."""
        if not self.is_reaped():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(self.pid, number)


class ChildProcesses:
    """Starts, watches and ends the processes of a server."""

    def __init__(self, loop: Loop, process_context: ProcessContext) -> None:
        """No child runs yet."""
        self._loop = loop
        self._process_context = process_context
        self._children: dict[int, ChildProcess] = {}
        self._starting: set[ChildProcess] = set()
        """Those that the fork server was told to start."""
        self._fork_server: ForkServerClient | None = None
        self._given_up: set[int] = set()
        self._ends: dict[int, OnEnded] = {}
        """Pid of a child of the keeper → what to call at its end."""

    def __len__(self) -> int:
        """Return the number of children that run or start, except those that were given up."""
        return len(self._starting) + len(self._children) - len(self._given_up)

    def use_fork_server(self, descriptor: int) -> None:
        """Fork those modules that a fork server has imported. The descriptor is that of a channel to it."""
        if self._fork_server is not None:
            self._fork_server.give_up("another one has taken its place")
        self._fork_server = ForkServerClient(self._loop, Channel(socket.socket(fileno=descriptor)))

    def start(
        self,
        role: str,
        module: str,
        on_ended: OnEnded,
        extra: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> ChildProcess:
        """Start ``python -m module``. ``on_ended(why)`` is called once when it has ended (``exit 1``, ``SIGKILL``…).

        A process that cannot be started (too many processes, no memory) has ended at once. If the fork server forks it,
        it has no pid before the fork server has answered. If there is no answer, the process is started without it.
        """
        child = ChildProcess(role)
        environment = {**os.environ, **self._process_context.environment(), ROLE_VARIABLE: role, **(extra or {})}
        if pass_fds or not self._fork(child, module, on_ended, environment):
            self._spawn(child, module, on_ended, environment, pass_fds)
        return child

    def _fork(self, child: ChildProcess, module: str, on_ended: OnEnded, environment: Mapping[str, str]) -> bool:
        """Fork a process; return False if it must be started without the fork server."""

        def started(pid: int, pidfd: int) -> None:
            self._starting.discard(child)
            if pidfd < 0:  # this process has too many open files, and did not get it
                try:
                    pidfd = os.pidfd_open(pid)
                except OSError as problem:
                    _kill_session(pid)
                    on_ended(f"it could not be watched, and was killed: {problem.strerror}")
                    return
            peer, fingerprint = environment.get(PEER_VARIABLE, ""), environment.get(FINGERPRINT_VARIABLE, "")
            self._watch(child, KeeperChild(pid, child.role, peer, pidfd, fingerprint), on_ended)

        def failed(why: str) -> None:
            self._starting.discard(child)
            on_ended(f"it could not be started: {why}")

        def given_back() -> None:
            self._starting.discard(child)
            if child.to_be_killed:
                on_ended(signal.SIGKILL.name)
            else:
                self._spawn(child, module, on_ended, environment)

        if self._fork_server is None or not self._fork_server.fork(
            module, environment, ForkCallbacks(started, failed, given_back)
        ):
            return False
        self._starting.add(child)
        return True

    def _spawn(
        self,
        child: ChildProcess,
        module: str,
        on_ended: OnEnded,
        environment: Mapping[str, str],
        pass_fds: Sequence[int] = (),
    ) -> None:
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
            return
        child.begin(process)
        self._children[process.pid] = child
        self._loop.on_death(process.pid, lambda: self._ended(child, process, on_ended))

    def adopt(self, survivor: KeeperChild, on_ended: OnEnded) -> ChildProcess:
        """Take over a process that an earlier supervisor started, and its descriptor; ``on_ended`` as in :meth:`start`."""
        child = ChildProcess(survivor.role)
        self._watch(child, survivor, on_ended)
        return child

    def _watch(self, child: ChildProcess, process: KeeperChild, on_ended: OnEnded) -> None:
        """Let a child be this child of the keeper until its end."""
        former = self._children.get(process.pid)
        if former is not None:  # it has ended, and the kernel reused its pid before the keeper's report was read
            self._keeper_child_ended(former, "how is not known")
        child.begin(process)
        self._children[process.pid] = child
        self._ends[process.pid] = on_ended

        def died() -> None:
            self._loop.on_readable(process.pidfd, None)
            # The keeper will report it in a moment, with its status.
            self._loop.call_later(REPORT_TIMEOUT_S, lambda: self._keeper_child_ended(child, "how is not known"))

        self._loop.on_readable(process.pidfd, died)

    def keeper_reaped(self, pid: int, status: int) -> None:
        """Handle the keeper's report of an ended process. The keeper has killed the rest of its group."""
        if self._starting and self._fork_server is not None:
            self._fork_server.read()  # the process has said before that it has started
        child = self._children.get(pid)
        # A running one has got the pid of the reported process, whose end is already known.
        if child is not None and pid in self._ends and child.is_reaped():
            self._keeper_child_ended(child, process_tree.describe_status(status))

    def _keeper_child_ended(self, child: ChildProcess, why: str) -> None:
        on_ended = self._ends.get(child.pid)
        if on_ended is not None and self._children.get(child.pid) is child:
            pid = child.pid
            del self._ends[pid]
            child.release(self._loop)
            self._forget(pid)
            on_ended(why)

    def _ended(self, child: ChildProcess, process: subprocess.Popen[bytes], on_ended: OnEnded) -> None:
        child.signal(signal.SIGKILL, group=True)
        status = process.wait()
        self._forget(process.pid)
        on_ended(process_tree.describe_status(status))

    def _forget(self, pid: int) -> None:
        del self._children[pid]
        self._given_up.discard(pid)

    def terminate(self, child: ChildProcess) -> None:
        """Ask a child (not its group) to end."""
        if child in self._starting:
            child.signal_when_started(signal.SIGTERM)
        elif child.pid in self._children:
            child.signal(signal.SIGTERM)

    def kill(self, child: ChildProcess) -> None:
        """End a child and everything in its group, now."""
        if child in self._starting:
            child.signal_when_started(signal.SIGKILL)
        elif child.pid in self._children:
            child.signal(signal.SIGKILL, group=True)

    def give_up(self, child: ChildProcess) -> None:
        """Kill a child, and no longer count it as running: one that waits for a dead disk may never end."""
        self.kill(child)
        if child.pid in self._children:
            self._given_up.add(child.pid)

    def kill_all(self) -> None:
        """End every child and its group, now."""
        for child in (*self._children.values(), *self._starting):
            self.kill(child)


def _kill_session(pid: int) -> None:
    """Kill the leader of a session, and its group; do nothing if the pid no longer belongs to such a leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getsid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)


@contextlib.contextmanager
def _sighup_blocked() -> Iterator[None]:
    """Let what is started here inherit SIGHUP blocked: the supervisor answers one that is sent to a whole control group."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
