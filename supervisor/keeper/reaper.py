"""Reaps every process that has become a child of the keeper, and ends those that are left at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from supervisor.keeper import process_tree

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.01


def become_subreaper() -> None:
    """Make processes whose parent dies children of this one. In a container, the first process gets them anyway.

    Raises ``OSError`` or ``ImportError`` where this is impossible.
    """
    if os.getpid() == 1:
        return
    import ctypes  # noqa: PLC0415 - not every build of Python has it

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def reap() -> Iterator[tuple[int, int]]:
    """Yield the pid and the status (as in ``subprocess``) of each child that has ended.

    The rest of its process group is killed before its pid is released, so that no engine outlives its worker.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        kill_group(ended.si_pid)
        _, status = os.waitpid(ended.si_pid, 0)
        yield ended.si_pid, os.waitstatus_to_exitcode(status)


def kill_group(pid: int) -> None:
    """Kill the process group that a child leads, if it leads one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill_all(timeout: float) -> None:
    """Kill all descendants, and wait for their ends. Any that cannot be killed within ``timeout`` seconds are left."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        # Children of killed processes become ours in the next round.
        for pid in process_tree.children(os.getpid()):
            kill_group(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for _ in reap():
            pass
        if not process_tree.children(os.getpid()):
            return
        time.sleep(_LOOK_S)
