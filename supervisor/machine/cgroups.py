"""What the control groups above this process leave of the memory. Pure: reads the files of a group, of version 1 or 2."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from protocol.runtime.control_groups import Cgroup
from supervisor.machine.pci import read_text

_USAGE: Final = {1: "memory.usage_in_bytes", 2: "memory.current"}
_LIMITS: Final = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}
"""Beyond ``memory.high`` the kernel slows processes down so much that an engine is of no use."""
_STATISTIC: Final = re.compile(
    r"^(file_mapped|shmem|unevictable|inactive_file|active_file|slab_reclaimable|hierarchical_memory_limit"
    r"|total_(?:mapped_file|shmem|unevictable|inactive_file|active_file)) ([0-9]+)$",
    re.MULTILINE,
)
"""Those that matter, of several dozen. Version 1 counts the groups below in ``total_…``."""


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


def read_memory(cgroup: Cgroup) -> CgroupMemory | None:
    """Return the memory of a control group; None if it has no limit, or is gone."""
    path, version = cgroup.path, cgroup.version
    limits = [int(text) for file in _LIMITS[version] if (text := read_text(f"{path}/{file}")).isdecimal()]
    if version == 2 and not limits:
        return None  # it would take the kernel a while to sum up the statistics of all groups below
    facts = _statistics(read_text(f"{path}/memory.stat"))
    if "hierarchical_memory_limit" in facts:  # the least limit of all groups above it, visible or not
        limits.append(facts["hierarchical_memory_limit"])
    used = read_text(f"{path}/{_USAGE[version]}")
    if not limits or not used.isdecimal():
        return None
    mapped = mapped_files(facts.get("file_mapped", 0), facts.get("shmem", 0), facts.get("unevictable", 0))
    cached = facts.get("inactive_file", 0) + facts.get("active_file", 0)
    kept = int(used) - cached - facts.get("slab_reclaimable", 0)
    return CgroupMemory(min(limits), max(0, kept + min(cached, mapped)), max(0, kept))


def _statistics(text: str) -> dict[str, int]:
    """Return what matters of ``memory.stat``, by the names of version 2."""
    facts = {name.removeprefix("total_"): int(number) for name, number in _STATISTIC.findall(text)}
    return {**facts, "file_mapped": facts.get("mapped_file", facts.get("file_mapped", 0))}


def mapped_files(mapped: int, shared: int, locked: int) -> int:
    """Return how much of the page cache processes have mapped. The kernel could drop it, but they use it: a model's weights.

    ``mapped`` also counts shared memory and locked pages, neither of which the kernel can drop.
    """
    return max(0, mapped - shared - locked)
