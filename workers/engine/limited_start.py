"""Starts an engine with limits: a small Python puts itself under them, and then becomes the engine.

So the engine is limited from its first instruction on, and nothing runs between a fork and an exec in the worker
(``parent_death.py`` has the reason). This takes 20 ms, and engines without limits are started without it.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Final

import msgspec

from protocol.models.engine_limits import EngineLimits
from protocol.runtime.accounts import check_user

_LIMIT: Final = """
import ctypes, json, os, stat, sys
parent, given, program = int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3:]
try:
    for file in given["join"]:
        with open(file, "w") as group:
            group.write("0")
    if given["processors"]:
        os.sched_setaffinity(0, given["processors"])
    if given["nice"]:
        try:
            os.nice(given["nice"])
        except PermissionError:
            pass
    if given["account"]:
        user, group, groups = given["account"]
        for output in 1, 2:
            if stat.S_ISFIFO(os.fstat(output).st_mode):
                os.fchown(output, user, -1)
        os.setgroups(groups)
        os.setgid(group)
        os.setuid(user)
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
    os.execvp(program[0], program)
except OSError as problem:
    sys.exit(f"{problem.filename or program[0]}: {problem.strerror}")
"""
"""Arguments: the parent's pid, what to do as JSON, then the program and its arguments.

The order counts: another user could no longer join a group. A change of the user removes the bond to the parent, which
therefore comes last. Only the owner of a pipe may open it again as ``/dev/stdout``. If the parent is already dead, nothing is run.
A negative nice value needs a privilege; the server has said at its start that it lacks it.
"""


def limited_command(command: list[str], limits: EngineLimits, groups: list[str]) -> list[str]:
    """Return the command that runs ``command`` under its limits, and is killed when the calling thread ends.

    ``groups``: the files of the control groups that it joins. Where none limits the processors, the engine runs on some of them
    only, chosen at random, so that two engines seldom have the same. Raises like :func:`~protocol.runtime.accounts.check_user`.
    """
    quota = any((Path(file).parent / name).exists() for file in groups for name in ("cpu.max", "cpu.cfs_quota_us"))
    account = check_user(limits.user)
    given = {
        "join": groups,
        "processors": [] if quota or not limits.cpus else some_processors(limits.whole_cpus),
        "nice": limits.nice,
        "account": account and account[:3],
    }
    encoded = msgspec.json.encode(given).decode()
    return [sys.executable, "-I", "-S", "-c", _LIMIT, str(os.getpid()), encoded, *command]


def some_processors(number: int) -> list[int]:
    """Return at most so many of the processors that this process may use."""
    own = sorted(os.sched_getaffinity(0))
    return sorted(random.sample(own, min(number, len(own))))
