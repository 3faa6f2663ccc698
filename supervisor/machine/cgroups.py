"""The control groups that limit the memory of this process: its own, and those above it. Pure: reads files under a root.

Version 1 and version 2 of the interface, both at once ("hybrid"), and containers that show only a part of the tree.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from supervisor.machine.pci import read_text

_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_USAGE: Final = {1: "memory.usage_in_bytes", 2: "memory.current"}
_LIMITS: Final = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}
"""Beyond ``memory.high`` the kernel slows processes down so much that an engine is of no use."""


class Cgroup(NamedTuple):
    """A control group whose memory this process counts against."""

    name: str
    """Its path as ``/proc/self/cgroup`` has it: ``/system.slice/lemonbus.service``."""
    path: Path
    """Its folder."""
    version: int


class CgroupMemory(NamedTuple):
    """The memory of a control group at one moment, in bytes."""

    limit: int
    """The most that its processes may use together."""
    used: int
    """What they use, without the page cache that no process has mapped."""
    kept: int
    """The part of this that the kernel cannot drop. When it reaches ``limit``, the kernel kills a process."""

    @property
    def free(self) -> int:
        """What they may still use."""
        return max(0, self.limit - self.used)


def find_cgroups(root: Path) -> list[Cgroup]:
    """Return this process's control group that counts memory, then those above it, as far up as they are visible."""
    version, own = _own_cgroup(read_text(root / "proc/self/cgroup"))
    if not own.startswith("/") or ".." in PurePosixPath(own).parts:
        return []  # outside the part of the tree that is visible here
    best: list[Cgroup] = []
    for top, folder in _mounts(read_text(root / "proc/self/mountinfo"), version):
        name = PurePosixPath(own)
        if name.is_relative_to(top):
            mounted = root / folder.lstrip("/")
            names = [each for each in (name, *name.parents) if each.is_relative_to(top)]
            found = [Cgroup(str(each), mounted / each.relative_to(top), version) for each in names]
            best = max(best, found, key=len)
    return best


def _own_cgroup(text: str) -> tuple[int, str]:
    """Return the version of the hierarchy that counts memory, and the path there; empty if there is none."""
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return 1, path
    return 2, next((path for number, controllers, path in lines if number == "0" and not controllers), "")


def _mounts(text: str, version: int) -> list[tuple[str, str]]:
    """Return the mounts of the hierarchy that counts memory: the group at their top, and their folder."""
    found = []
    for line in text.splitlines():
        mount, separator, system = line.partition(" - ")
        fields, kind = mount.split(), system.split()
        if not separator or len(fields) < 5 or len(kind) < 3:
            continue
        memory = kind[0] == "cgroup2" if version == 2 else kind[0] == "cgroup" and "memory" in kind[2].split(",")
        if memory:
            found.append((_unescaped(fields[3]), _unescaped(fields[4])))
    return found


def _unescaped(path: str) -> str:
    return _OCTAL.sub(lambda octal: chr(int(octal[1], 8)), path)


def read_memory(cgroup: Cgroup) -> CgroupMemory | None:
    """Return the memory of a control group; None if it has no limit, or is gone."""
    facts = _statistics(read_text(cgroup.path / "memory.stat"))
    limits = [int(text) for file in _LIMITS[cgroup.version] if (text := read_text(cgroup.path / file)).isdecimal()]
    if "hierarchical_memory_limit" in facts:  # the least limit of all groups above it, visible or not
        limits.append(facts["hierarchical_memory_limit"])
    used = read_text(cgroup.path / _USAGE[cgroup.version])
    if not limits or not used.isdecimal():
        return None
    mapped = mapped_files(facts.get("file_mapped", 0), facts.get("shmem", 0), facts.get("unevictable", 0))
    cached = facts.get("inactive_file", 0) + facts.get("active_file", 0)
    kept = int(used) - cached - facts.get("slab_reclaimable", 0)
    return CgroupMemory(min(limits), max(0, kept + min(cached, mapped)), max(0, kept))


def _statistics(text: str) -> dict[str, int]:
    """Return ``memory.stat`` with the names of version 2. Version 1 counts the groups below in ``total_…``."""
    facts = {}
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if number.isdecimal():
            facts[name] = int(number)
    if "total_cache" in facts:
        total = {name.removeprefix("total_"): value for name, value in facts.items() if name.startswith("total_")}
        return {**facts, **total, "file_mapped": total.get("mapped_file", 0)}
    return facts


def mapped_files(mapped: int, shared: int, locked: int) -> int:
    """Return how much of the page cache processes have mapped. The kernel could drop it, but they use it: a model's weights.

    ``mapped`` also counts shared memory and locked pages, neither of which the kernel can drop.
    """
    return max(0, mapped - shared - locked)
