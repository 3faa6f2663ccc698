"""Children of the keeper: what the fork server forked, and what an earlier supervisor started and that outlived it.

The environment of a survivor says what it is, so no file has to be written, or could be out of date.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from typing import NamedTuple

from protocol.runtime import process_name
from protocol.runtime.process_context import (
    BOOT_VARIABLE,
    FINGERPRINT_VARIABLE,
    HEARTBEAT_VARIABLE,
    PEER_VARIABLE,
    ROLE_VARIABLE,
    ProcessContext,
)
from supervisor.keeper import process_tree
from supervisor.processes import environment_block


class KeeperChild(NamedTuple):
    """A gateway, worker or job that is a child of the keeper, not of this supervisor."""

    pid: int
    """Its pid, which is also its group's and its session's."""
    role: str
    """``gateway`` (gunicorn's master), ``worker`` or ``job``."""
    peer: str
    """Its id on the bus; empty for gunicorn's master, which is not on the bus."""
    pidfd: int
    """Opened before anything about it was read, so it cannot mean a later process with the same pid.

    The caller closes it.
    """
    fingerprint: str = ""
    """Its settings and release: see :mod:`supervisor.processes.fingerprints`."""
    started: int = 0
    """When it was started, in ticks since the machine's start."""
    welcomed: bool = False
    """Whether a supervisor has welcomed this worker or job. One that was not has no model and no order."""
    heartbeat_fd: int = -1
    """For gunicorn's master, the number of its end of the heartbeat pipe in that process."""

    def is_running(self) -> bool:
        """Return whether the process has not been reaped."""
        return _exists(self.pidfd)

    def open_heartbeat(self) -> int:
        """Return the read end of gunicorn's heartbeat pipe, which the caller owns; -1 if there is none."""
        try:
            descriptor = os.open(f"/proc/{self.pid}/fd/{self.heartbeat_fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return -1
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode) and self.is_running():
            return descriptor
        os.close(descriptor)
        return -1

    def kill(self) -> None:
        """Kill a process that is not adopted, and its group."""
        if self.is_running():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close its descriptor."""
        os.close(self.pidfd)


def find_survivors(context: ProcessContext) -> list[KeeperChild]:
    """Return the processes of this boot whose supervisor is gone."""
    found = [_survivor(pid, context) for pid in process_tree.children(context.keeper)]
    return [each for each in found if each is not None]


def _survivor(pid: int, context: ProcessContext) -> KeeperChild | None:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        environment = environment_block.of_process(pid)
        role = environment.get(ROLE_VARIABLE, "")
        leads = os.getsid(pid) == pid  # an engine inherits the environment of its worker, but not its session
        ours = role and leads and environment.get(BOOT_VARIABLE) == context.boot
        if ours and process_tree.parent(pid) == context.keeper and _exists(pidfd):
            return KeeperChild(
                pid=pid,
                role=role,
                peer=environment.get(PEER_VARIABLE, ""),
                pidfd=pidfd,
                fingerprint=environment.get(FINGERPRINT_VARIABLE, ""),
                started=process_tree.start_time(pid),
                welcomed=process_name.is_welcomed(pid, role),
                heartbeat_fd=int(environment.get(HEARTBEAT_VARIABLE, "-1")),
            )
    except OSError:
        pass  # it has ended
    os.close(pidfd)
    return None


def _exists(pidfd: int) -> bool:
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except ProcessLookupError:
        return False
    return True
