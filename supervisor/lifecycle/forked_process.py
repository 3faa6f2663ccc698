"""Makes a forked process like one that was started by itself, before it runs its module."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn

from protocol.runtime import process_name
from protocol.runtime.process_context import (
    BOOT_VARIABLE,
    FINGERPRINT_VARIABLE,
    KEEPER_VARIABLE,
    PEER_VARIABLE,
    ROLE_VARIABLE,
    RUNTIME_VARIABLE,
)
from supervisor.keeper.channel import Channel
from supervisor.processes import environment_block, fork_orders

_IDENTITY: Final = (
    ROLE_VARIABLE,
    PEER_VARIABLE,
    FINGERPRINT_VARIABLE,
    RUNTIME_VARIABLE,
    BOOT_VARIABLE,
    KEEPER_VARIABLE,
)
"""The environment variables that identify a process to other processes."""
_ANNOUNCE_TIMEOUT_S: Final = 20.0
_LOOK_S: Final = 0.0005
_LAST_STANDARD_STREAM: Final = 2


def become(orders: Channel, number: str, module: str, environment: Mapping[str, str], parent: int) -> NoReturn:
    """Announce this process to the supervisor, and run ``python -m module`` with this environment.

    ``parent``: the pid of the parent, which ends at once, so that the keeper becomes the parent.
    """

    def run() -> int:
        shown = _be_a_process_of_its_own(orders.fileno(), module, environment)
        while os.getppid() == parent:
            time.sleep(_LOOK_S)  # another supervisor finds this process among the children of the keeper
        # Only the listening supervisor knows of this process; without it, nothing may run.
        if not _announce(orders, number):
            return 1
        if not shown:
            os.execv(sys.executable, _command(module))  # noqa: S606 - the kernel shows what a new program is given
        return _run(module)

    run_and_exit(run)


def run_and_exit(run: Callable[[], int]) -> NoReturn:
    """End this process with the exit code of ``run``, or with 1: the stack below belongs to the fork server."""
    code = 1
    try:
        code = run()
    except BaseException:  # noqa: BLE001 - nothing below may run
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _be_a_process_of_its_own(kept: int, module: str, environment: Mapping[str, str]) -> bool:
    """Replace what a fork copies but ``exec`` would not.

    ``kept``: a descriptor to keep. Return whether /proc shows it.
    """
    os.setsid()
    # The keeper answers signals to a whole control group here as well, so this one is blocked before it could kill.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _replace_descriptors(kept)
    os.environ.clear()
    os.environ.update(environment)
    process_name.set_name(Path(sys.executable).name)
    identity = {name: environment[name] for name in _IDENTITY if name in environment}
    return environment_block.show(_command(module), identity, environment)


def _replace_descriptors(kept: int) -> None:
    """Close everything except the standard streams and ``kept``. The output goes where the log goes."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    for descriptor in [int(each.name) for each in Path("/proc/self/fd").iterdir()]:
        if descriptor > _LAST_STANDARD_STREAM and descriptor != kept:
            with contextlib.suppress(OSError):  # that of the folder itself
                os.close(descriptor)


def _announce(orders: Channel, number: str) -> bool:
    """Tell the supervisor that this process runs; return False if it does not listen."""
    pid = os.getpid()
    pidfd = os.pidfd_open(pid)
    try:
        return orders.send(fork_orders.FORKED, f"{number} {pid}", pidfd, timeout=_ANNOUNCE_TIMEOUT_S)
    finally:
        os.close(pidfd)
        orders.close()


def _command(module: str) -> list[str]:
    return [sys.executable, "-m", module]


def _run(name: str) -> int:
    """Run a module's ``main`` as ``python -m`` does; return the exit code."""
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        module = importlib.import_module(f"{name}.__main__")
    sys.argv = [str(module.__file__)]
    try:
        module.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
