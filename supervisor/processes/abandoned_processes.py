"""Processes of an earlier server in this runtime directory: they exit within its grace period, or are killed.

Gateways and workers notice that their supervisor has died, let streams end, and exit.  A process that is stopped or stuck does not;
it would keep an engine and its memory forever.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Final

import psutil

from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import BOOT_VARIABLE, KEEPER_VARIABLE, RUNTIME_VARIABLE, ProcessContext

MARGIN_S: Final = 5.0
"""Time after the grace period for a process to answer its clients and to exit."""

log = logs.get_logger()


def kill_later(loop: Loop, context: ProcessContext, grace: float) -> None:
    """Kill the remaining processes of earlier servers when ``grace`` and a margin are over."""
    loop.call_later(grace + MARGIN_S, lambda: kill_abandoned(context))


def kill_abandoned(context: ProcessContext) -> None:
    """Kill every process that a server with another boot id, or keeper, started in our runtime directory, which we have locked."""
    ours = {BOOT_VARIABLE: context.boot, KEEPER_VARIABLE: str(context.keeper)}
    _kill(context, lambda environment: any(environment.get(name, value) != value for name, value in ours.items()))


def kill_left_behind(context: ProcessContext) -> None:
    """Kill every process in our runtime directory, which we have locked, whose keeper is another process than this one.

    The kernel ends workers and engines with their node's agent; what an engine has started may be left.
    """
    _kill(context, lambda environment: environment.get(KEEPER_VARIABLE) != str(context.keeper))


def _kill(context: ProcessContext, is_old: Callable[[Mapping[str, str]], bool]) -> None:
    ours = str(context.runtime)
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # it has ended, or belongs to another user
            environment = process.environ()
            if environment.get(RUNTIME_VARIABLE) != ours:
                continue
            if process.pid == os.getpid() or not is_old(environment):
                continue
            command = " ".join(process.cmdline())
            process.kill()
            log.warning("process of an earlier server killed", process_pid=process.pid, command=command)
