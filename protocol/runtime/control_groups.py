"""Control groups: those that this process is in, and where groups for engines may be made. Only files are read and written here.

Version 1 and version 2 of the interface, both at once ("hybrid"), and containers that show only a part of the tree.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

MEMORY: Final = "memory"
CPU: Final = "cpu"
CONTROLLERS: Final = (CPU, MEMORY)
"""Those that limit engines."""
SERVER_GROUP: Final = "lemonbus-server"
"""The group of the server's own processes.

In version 2, a group that limits groups below it may have no processes itself, so engines only get groups of their own,
beside this one, if the service manager or the operator starts the server in it.
"""
ENGINE_PREFIX: Final = "lemonbus-engine-"
"""The group of an engine is named by this and the pid of its worker."""
PROCESSES: Final = "cgroup.procs"
KILL_COUNTERS: Final = ("memory.events", "memory.oom_control")
"""The files with the number of a group's processes that the kernel has killed, whichever group had too little memory."""
_ENABLED: Final = "cgroup.subtree_control"
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


class Cgroup(NamedTuple):
    """A control group that this process is in, itself or by a group below."""

    name: str
    """Its path as ``/proc/self/cgroup`` has it: ``/system.slice/lemonbus.service``."""
    path: Path
    """Its folder."""
    version: int


def find_cgroups(root: Path, controller: str = MEMORY) -> list[Cgroup]:
    """Return this process's group of a controller, then those above it, as far up as they are visible."""
    version, own = _own_cgroup(_read(root / "proc/self/cgroup"), controller)
    if not own.startswith("/") or ".." in PurePosixPath(own).parts:
        return []  # outside the part of the tree that is visible here
    best: list[Cgroup] = []
    for top, folder in _mounts(_read(root / "proc/self/mountinfo"), version, controller):
        name = PurePosixPath(own)
        if name.is_relative_to(top):
            mounted = root / folder.lstrip("/")
            names = [each for each in (name, *name.parents) if each.is_relative_to(top)]
            found = [Cgroup(str(each), mounted / each.relative_to(top), version) for each in names]
            best = max(best, found, key=len)
    return best


def _own_cgroup(text: str, controller: str) -> tuple[int, str]:
    """Return the version of the controller's hierarchy, and the path there; empty if there is none."""
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    for _, controllers, path in lines:
        if controller in controllers.split(","):
            return 1, path
    return 2, next((path for number, controllers, path in lines if number == "0" and not controllers), "")


def _mounts(text: str, version: int, controller: str) -> list[tuple[str, str]]:
    """Return the mounts of the controller's hierarchy: the group at their top, and their folder."""
    found = []
    for line in text.splitlines():
        mount, separator, system = line.partition(" - ")
        fields, kind = mount.split(), system.split()
        if not separator or len(fields) < 5 or len(kind) < 3:
            continue
        fits = kind[0] == "cgroup2" if version == 2 else kind[0] == "cgroup" and controller in kind[2].split(",")
        if fits:
            found.append((_unescaped(fields[3]), _unescaped(fields[4])))
    return found


def _unescaped(path: str) -> str:
    return _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), path)


# ---- groups for engines ------------------------------------------------------------------------------------------


def parent_of_engines(controller: str, root: Path = Path("/")) -> Cgroup | None:
    """Return the group below which engines may get groups of their own that limit this; None if there is none."""
    groups = find_cgroups(root, controller)
    if not groups:
        return None
    parent = groups[0]
    if parent.version == 2:
        if parent.path.name != SERVER_GROUP or len(groups) == 1:
            return None
        parent = groups[1]
        if controller not in _read(parent.path / _ENABLED).split():
            return None
    return parent if os.access(parent.path, os.W_OK) else None


def enable_controllers(root: Path = Path("/")) -> None:
    """Turn on the controllers for the groups beside the server's own, where version 2 and the owner of the tree allow it."""
    for controller in CONTROLLERS:
        groups = find_cgroups(root, controller)
        if len(groups) > 1 and groups[0].version == 2 and groups[0].path.name == SERVER_GROUP:
            with contextlib.suppress(OSError):
                (groups[1].path / _ENABLED).write_text(f"+{controller}")


def worker_of(group: Path) -> int:
    """Return the pid of the worker that made a group for an engine; 0 for any other group."""
    found = re.fullmatch(rf"{ENGINE_PREFIX}(\d+)", group.name)
    return int(found[1]) if found else 0


def kernel_kills(group: Path) -> int:
    """Return how many processes of a group the kernel has killed because memory ran out."""
    return next((count for name in KILL_COUNTERS if (count := counter(group / name, "oom_kill")) is not None), 0)


def counter(file: Path, wanted: str) -> int | None:
    """Return a counter of a file with lines of names and numbers; None if it has none of that name."""
    for line in _read(file).splitlines():
        name, _, count = line.partition(" ")
        if name == wanted and count.isdecimal():
            return int(count)
    return None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
