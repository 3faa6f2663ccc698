"""A control group for one engine, where one may be made: the kernel keeps the engine within its limits.

The worker makes it and removes it. If the worker dies, the supervisor removes it (``supervisor/processes/engine_groups.py``).
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Final

from protocol.runtime import control_groups
from protocol.runtime.control_groups import CPU, ENGINE_PREFIX, MEMORY, PROCESSES

_PERIOD_US: Final = 100_000
"""The time in which an engine may use its processors that long."""
_LEAST_QUOTA_US: Final = 1000
_MARGIN_SHARE: Final = 16
_LEAST_MARGIN: Final = 32 << 20
_OF_SWAP: Final = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes"})
"""Files that are there only if the kernel counts swap."""


class EngineGroup:
    """One group in each hierarchy that limits something; in version 2 there is only one hierarchy."""

    def __init__(self, cpus: float, memory: int, root: Path = Path("/")) -> None:
        """Make the groups that can be made here. ``memory`` in bytes; 0: no limit."""
        self.folders: list[Path] = []
        name = f"{ENGINE_PREFIX}{os.getpid()}"
        for controller, limited in ((MEMORY, memory), (CPU, cpus)):
            parent = control_groups.parent_of_engines(controller, root) if limited else None
            if parent is not None:
                values = memory_files(memory) if controller == MEMORY else cpu_files(cpus)
                self._make(parent.path / name, values[parent.version])
        self._kills = self._count_kills()

    def _make(self, folder: Path, values: dict[str, str]) -> None:
        try:
            folder.mkdir(exist_ok=True)
            for file, value in values.items():
                with contextlib.suppress(*([OSError] if file in _OF_SWAP else [])):
                    (folder / file).write_text(value)
        except OSError:
            if folder not in self.folders:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            return
        if folder not in self.folders:
            self.folders.append(folder)

    @property
    def process_files(self) -> list[str]:
        """The files into which a process writes ``0`` to join."""
        return [str(folder / PROCESSES) for folder in self.folders]

    def kernel_kills(self) -> int:
        """Return how many of its processes the kernel has killed because they had used up the group's memory."""
        return self._count_kills() - self._kills

    def _count_kills(self) -> int:
        return max(map(control_groups.kernel_kills, self.folders), default=0)

    def remove(self) -> None:
        """Kill what is left in the groups, and remove them. What has not ended at once is left to the supervisor."""
        for folder in self.folders:
            with contextlib.suppress(OSError):
                for pid in (folder / PROCESSES).read_text().split():
                    with contextlib.suppress(OSError):
                        os.kill(int(pid), signal.SIGKILL)
                folder.rmdir()
        self.folders.clear()


def memory_files(limit: int) -> dict[int, dict[str, str]]:
    """Return version → file → value, for a limit in bytes.

    The kernel's limit is a little higher: the worker, which looks at the engine four times a second, can then say what
    happened, and the kernel only ends an engine that grows faster. Mapped files count for the worker, while the kernel would drop
    them and read them from the disk again and again. The engine does not get swap: it would be too slow there to be of use,
    and the worker does not count it.
    """
    hard = str(limit + max(limit // _MARGIN_SHARE, _LEAST_MARGIN))
    return {
        # The limit with swap may not be lower than the one without, so it comes second.
        1: {"memory.limit_in_bytes": hard, "memory.memsw.limit_in_bytes": hard},
        2: {"memory.max": hard, "memory.swap.max": "0", "memory.oom.group": "1"},
    }


def cpu_files(cpus: float) -> dict[int, dict[str, str]]:
    """Return version → file → value, for a number of processors."""
    quota = max(_LEAST_QUOTA_US, round(cpus * _PERIOD_US))
    return {
        1: {"cpu.cfs_period_us": str(_PERIOD_US), "cpu.cfs_quota_us": str(quota)},
        2: {"cpu.max": f"{quota} {_PERIOD_US}"},
    }
