"""The machine's own memory: what the kernel has available, and what the control groups above this process leave of it.

Pure: reads files under a root, in less than a millisecond. Page cache counts as free unless a process has mapped it: the kernel
could drop the weights of a loaded model, but its engine would read them from the disk again for every token.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from protocol.models.memory import HOST, Capacity
from protocol.runtime.control_groups import find_cgroups
from supervisor.machine.cgroups import mapped_files, read_memory
from supervisor.machine.pci import read_text

_LINE: Final = re.compile(
    r"^(?:Node \d+ )?(Mem(?:Total|Free|Available)|Mapped|Shmem|Mlocked|Hugetlb|SwapFree|SReclaimable"
    r"|(?:Ina|A)ctive\(file\)):\s+(\d+) kB$",
    re.MULTILINE,
)
"""Those that matter, of several dozen: they are read each second."""
_KIBI: Final = 1024
_NODE: Final = re.compile(r"^Node:\s+(\d+)$", re.MULTILINE)
_RECLAIMABLE: Final = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
"""What the kernel counts of a node as available, in part."""


class HostMemory(NamedTuple):
    """The machine's memory at one moment, in bytes."""

    total: int
    free: int
    """What is available, without the files that processes have mapped."""
    headroom: int
    """What is available with them, and with swap: when it is used up, the kernel kills a process."""


def host_capacity(machine: Path) -> Capacity:
    """Return the memory of the host. ``machine`` has the ``proc`` that describes it.

    ``total`` is without pages reserved as huge pages, which engines cannot use; ``free`` is without swap.
    """
    total, free, _ = read_host_memory(machine)
    limit = ""
    for group in find_cgroups(process_root(machine)):
        memory = read_memory(group)
        if memory is not None and memory.limit < total:
            total = memory.limit
        if memory is not None and memory.free < free:
            free, limit = memory.free, group.name
    return Capacity(HOST, total, free, limit)


def process_root(machine: Path) -> Path:
    """Return the root of the files about this process.

    Its control groups are where it sees them itself, even if ``machine`` is the host of its container. Only a recorded
    machine has its own; there ``self`` is a folder, and not the link that a kernel shows.
    """
    own = machine / "proc/self"
    return machine if own.is_dir() and not own.is_symlink() else Path("/")


def read_host_memory(machine: Path) -> HostMemory:
    """Return the machine's memory, whatever control groups leave of it."""
    facts = _sizes(f"{machine}/proc/meminfo") or _sizes("/proc/meminfo")
    available = facts.get("MemAvailable", facts.get("MemFree", 0))
    for node in _gpu_nodes(machine):
        of_gpu = _sizes(f"{node}/meminfo")
        available -= sum(of_gpu.get(name, 0) for name in _RECLAIMABLE)
        facts = {name: size - of_gpu.get(name, 0) for name, size in facts.items()}
    mapped = mapped_files(facts.get("Mapped", 0), facts.get("Shmem", 0), facts.get("Mlocked", 0))
    cached = facts.get("Active(file)", 0) + facts.get("Inactive(file)", 0)
    total = facts.get("MemTotal", 0) - facts.get("Hugetlb", 0)
    available = max(0, available)
    return HostMemory(total, max(0, available - min(mapped, cached)), available + facts.get("SwapFree", 0))


def _sizes(file: str) -> dict[str, int]:
    """Return the sizes in a ``meminfo``, of the machine or of one of its nodes, in bytes."""
    return {name: int(number) * _KIBI for name, number in _LINE.findall(read_text(file))}


def _gpu_nodes(machine: Path) -> list[Path]:
    """Return the NUMA nodes that are the memory of GPUs (Grace Hopper), which the kernel counts in the machine's.

    NVIDIA's driver names them. A node without processors alone may also be the host's: memory on CXL, or fast memory in the processor.
    """
    found = []
    for file in machine.glob("proc/driver/nvidia/gpus/*/numa_status"):
        number = _NODE.search(read_text(file))
        node = machine / f"sys/devices/system/node/node{number[1]}" if number else None
        if node is not None and node not in found and not read_text(node / "cpulist"):
            found.append(node)
    return found
