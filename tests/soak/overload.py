"""Notes when the machine has far more to do than it can: then a process may be silent for seconds without any fault."""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path
from typing import Final

from tests.soak.history import EVERYWHERE, FaultKind, History

_EVERY_S: Final = 0.2
_SAMPLES: Final = 10
MOST_RUNNABLE: Final = 24
"""Threads that want each processor, on the average of two seconds. The soak alone has a small part of that."""


def runnable() -> int:
    """Return how many threads of the machine run or want to."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])


class Overload(threading.Thread):
    """Notes a fault for as long as the machine is overloaded."""

    def __init__(self, end: threading.Event, history: History) -> None:
        """Look until the end."""
        super().__init__(name="overload", daemon=True)
        self._end, self._history = end, history
        self._samples: deque[int] = deque(maxlen=_SAMPLES)

    def run(self) -> None:
        """Look until the end."""
        while not self._end.wait(_EVERY_S):
            if self._is_overloaded():
                with self._history.fault(FaultKind.OVERLOAD, EVERYWHERE, "the machine was overloaded"):
                    while self._is_overloaded() and not self._end.wait(_EVERY_S):
                        pass

    def _is_overloaded(self) -> bool:
        self._samples.append(runnable())
        return sum(self._samples) / len(self._samples) > MOST_RUNNABLE * len(os.sched_getaffinity(0))
