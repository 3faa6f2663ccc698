"""An engine's output: written line by line into the log, with the last lines kept for the failure report.

An engine writes a line in several pieces, and each would wake this process while the engine needs the processors.  So
after a first piece the output is read every ``OUTPUT_BATCH_DELAY_S``, and before another request begins or ends: what
it said until then belongs to those that ran.

Invariant: a pipe is watched by the loop, or a timer for it is pending, until it ends.
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
"""A pipe holds 64 KiB; an engine that writes more within this time waits."""


class OutputReader:
    """Reads the output of one engine."""

    def __init__(
        self,
        loop: Loop,
        log: logs.Logger,
        pid: int,
        label: Callable[[], str | None],
        fds: list[int],
        parse: Callable[[bytes], tuple[str, str]],
        is_progress: Callable[[bytes], bool] = lambda _line: False,
    ) -> None:
        """Read ``fds``, which become non-blocking.

        ``label`` returns the id of the running request, empty for none, None for several; ``parse``: see
        :meth:`workers.backends.base.Backend.parse`.  ``is_progress`` gets every line, also those that a terminal would
        overwrite, and returns whether the line says how far the engine is: such lines are not logged.
        """
        self._loop, self._parse, self._is_progress = loop, parse, is_progress
        self._log = log.bind(process="engine", pid=pid)
        self._label = label
        self._incomplete: dict[int, bytes] = {}
        """Open pipe → the beginning of a line."""
        self._batched: set[int] = set()
        """Open pipes that are read by a timer."""
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        for fd in fds:
            os.set_blocking(fd, False)
            self._incomplete[fd] = b""
            loop.on_readable(fd, self._reader(fd))

    def _reader(self, fd: int) -> Callback:
        def read() -> None:
            self._read(fd)
            if fd in self._incomplete:
                self._loop.on_readable(fd, None)
                self._batched.add(fd)
                self._loop.call_later(OUTPUT_BATCH_DELAY_S, read_again)

        def read_again() -> None:
            if fd not in self._batched:
                return
            if self._read(fd):
                self._loop.call_later(OUTPUT_BATCH_DELAY_S, read_again)
            elif fd in self._batched:
                self._batched.remove(fd)
                self._loop.on_readable(fd, read)

        return read

    def read_batched(self, label: str) -> None:
        """Read what was not read yet; it belongs to the request ``label``."""
        for fd in tuple(self._batched):
            self._read(fd, label)

    def _read(self, fd: int, label: str | None = None) -> bool:
        """Read once; return whether there was something. ``label``: else that of the request that runs."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end(fd)
            return False
        if label is None:
            label = self._label() or ""
        *lines, rest = (self._incomplete[fd] + data).split(b"\n")
        if len(rest) > MAX_LINE_BYTES:
            lines.append(rest)
            rest = b""
        for line in lines:
            self._log_line(line, label)
        # A progress bar ends with the carriage return that begins the next one.
        *overwritten, rest = rest.split(b"\r")
        for bar in (*overwritten, rest):
            self._is_progress(bar)
        self._incomplete[fd] = rest
        return True

    def _log_line(self, line: bytes, label: str) -> None:
        *overwritten, line = line.rstrip(b"\r").split(b"\r")
        for bar in overwritten:
            self._is_progress(bar)
        line = line[:MAX_LINE_BYTES]
        if not line.strip() or self._is_progress(line):
            return
        level, text = self._parse(line)
        if level != "trace":  # what a client wrote is shown at that level and nowhere else
            self.last_lines.append(text)
        fields = {"request_id": label} if label else {}
        getattr(self._log, level)(text, **fields)

    def _end(self, fd: int) -> None:
        self._loop.on_readable(fd, None)
        self._batched.discard(fd)
        self._log_line(self._incomplete.pop(fd), self._label() or "")

    def drain(self) -> None:
        """Read the rest of a dead engine's output, and stop reading."""
        for fd in list(self._incomplete):
            for _ in range(1000):
                if not self._read(fd):
                    break
            if fd in self._incomplete:
                self._end(fd)
