"""What a server under test writes to stderr, in a file, so that no reader has to keep up with the server."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, BinaryIO


class LogFile:
    """A log that is still written."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self.stderr: BinaryIO = path.open("ab")
        """For the one who writes; several may, a line at a time."""
        self._reading = path.open("rb")
        self._lines: list[dict[str, Any]] = []
        self._strays: list[str] = []
        self._rest = b""
        self._lock = threading.Lock()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its JSON lines so far, a list that grows."""
        self._read()
        return self._lines

    @property
    def strays(self) -> list[str]:
        """What is not a JSON line."""
        self._read()
        return self._strays

    def _read(self) -> None:
        with self._lock:
            if self._reading.closed:
                return
            *whole, self._rest = (self._rest + self._reading.read()).split(b"\n")
            for line in whole:
                try:
                    self._lines.append(json.loads(line))
                except ValueError:
                    self._strays.append(line.decode("utf-8", "replace") + "\n")

    def close(self) -> None:
        """Read what is there, and no more."""
        self._read()
        if self._rest:
            self._strays.append(self._rest.decode("utf-8", "replace"))
            self._rest = b""
        self._reading.close()
        self.stderr.close()
