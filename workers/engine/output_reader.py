"""An engine's output: pumped line by line into the log, with its level, and the last lines kept for the failure.

An engine writes a line in several pieces, and each would wake this process.  While several requests run, so that
nobody can tell whose a line is, what comes is read every now and then.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Final

from protocol.runtime import logs
from protocol.runtime.loop import Callback, Loop

KEPT_LINES: Final = 50
MAX_LINE_BYTES: Final = 8192
OUTPUT_BATCH_DELAY_S: Final = 0.01
"""How long lines wait for others while several requests run. A pipe holds 64 KiB, and its engine waits beyond that."""


class OutputReader:
    """Reads the output of one engine."""

    def __init__(
        self,
        loop: Loop,
        log: logs.Logger,
        pid: int,
        label: Callable[[], str | None],
        fds: list[int],
        reads: Callable[[bytes], tuple[str, str]],
    ) -> None:
        """Read ``fds`` (non-blocking from here on); ``label``: the running request, empty for none, None for several.

        ``reads``: see :meth:`workers.backends.base.Backend.parse`.
        """
        self._loop, self._reads = loop, reads
        self._log = log.bind(process="engine", pid=pid)
        self._label = label
        self._rest: dict[int, bytes] = {}
        self.last: deque[str] = deque(maxlen=KEPT_LINES)
        for fd in fds:
            os.set_blocking(fd, False)
            self._rest[fd] = b""
            loop.on_readable(fd, self._reader(fd))

    def _reader(self, fd: int) -> Callback:
        def read() -> None:
            label = self._label()
            self._read(fd, label or "")
            if label is None and fd in self._rest:
                self._loop.on_readable(fd, None)
                self._loop.call_later(OUTPUT_BATCH_DELAY_S, read_again)

        def read_again() -> None:
            if fd not in self._rest:
                return
            # Whoever is alone now need not have been when this was written.
            if self._read(fd) and self._label() is None:
                self._loop.call_later(OUTPUT_BATCH_DELAY_S, read_again)
            elif fd in self._rest:
                self._loop.on_readable(fd, read)

        return read

    def _read(self, fd: int, label: str = "") -> bool:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end(fd)
            return False
        *lines, rest = (self._rest[fd] + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines.append(rest)
            rest = b""
        self._rest[fd] = rest
        for line in lines:
            self._line(line, label)
        return True

    def _line(self, line: bytes, label: str) -> None:
        line = line.rstrip(b"\r")[:MAX_LINE_BYTES]
        if not line.strip():
            return
        level, text = self._reads(line)
        if level != "trace":  # what a client wrote is shown at that level and nowhere else
            self.last.append(text)
        fields = {"request_id": label} if label else {}
        getattr(self._log, level)(text, **fields)

    def _end(self, fd: int) -> None:
        self._loop.on_readable(fd, None)
        self._line(self._rest.pop(fd), self._label() or "")

    def drain(self) -> None:
        """Read what a dead engine still wrote, and stop reading."""
        for fd in list(self._rest):
            for _ in range(1000):
                if not self._read(fd, self._label() or ""):
                    break
            if fd in self._rest:
                self._end(fd)
