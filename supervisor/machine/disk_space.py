"""How much space is left on the disks of the server's directories.

Asking a file system that is mounted over a network may take minutes. So a thread asks, one at a time; what it found last is
what is known. A directory whose file system does not answer is left out after a minute.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from protocol.messages.health import DiskSpace
from protocol.runtime.loop import Loop

LEAST_AGE_S: Final = 1.0
LONGEST_AGE_S: Final = 60.0

Reading = tuple[float, DiskSpace]


class DiskSpaces:
    """The last answer for each directory."""

    def __init__(self, loop: Loop, directories: Mapping[str, Path]) -> None:
        """``directories``: what each is for → where it is, or will be."""
        self._loop, self._directories = loop, dict(directories)
        self._answers: deque[Reading] = deque()
        self._known: dict[str, Reading] = {}
        self._thread: threading.Thread | None = None
        self._asked_at = -math.inf
        self.refresh()

    def refresh(self) -> None:
        """Ask again, unless this was just done, or is not answered yet. The answers are known in a moment."""
        now = self._loop.now()
        if now - self._asked_at >= LEAST_AGE_S and (self._thread is None or not self._thread.is_alive()):
            self._asked_at = now
            self._thread = threading.Thread(target=self._ask, args=(now,), name="disk-space", daemon=True)
            self._thread.start()

    def known(self) -> list[DiskSpace]:
        """Return what is known now, in the order of the directories."""
        while self._answers:
            reading = self._answers.popleft()
            self._known[reading[1].directory] = reading
        oldest = self._loop.now() - LONGEST_AGE_S
        return [
            self._known[name][1] for name in self._directories if name in self._known and self._known[name][0] >= oldest
        ]

    def _ask(self, now: float) -> None:
        for name, path in self._directories.items():
            space = _space(name, path)
            if space is not None:
                self._answers.append((now, space))


def _space(name: str, path: Path) -> DiskSpace | None:
    """Return the space where a directory is. One that does not exist yet will be on the disk of its parent."""
    for each in (path, *path.parents):
        try:
            found = os.statvfs(each)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        return DiskSpace(name, found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
    return None
