"""The stderr of a server under test, in a file, so that no reader has to keep up with the server."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, BinaryIO


class LogFile:
    """A log that is still being written."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self.stderr: BinaryIO = path.open("ab")
        """The file to write to; several processes may write lines to it."""
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
        """The lines that are not JSON."""
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
        """Read the present content, without waiting for more."""
        self._read()
        if self._rest:
            self._strays.append(self._rest.decode("utf-8", "replace"))
            self._rest = b""
        self._reading.close()
        self.stderr.close()
