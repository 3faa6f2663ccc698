"""An engine's output: written line by line into the log; the last lines are kept for the failure report.

An engine writes a line in several pieces, and each would wake this process while the engine needs the processors. So
after a first piece, the output is read every ``OUTPUT_BATCH_DELAY_S``, and at once when requests begin or end, as
``line_attribution.py`` describes. What has been read by then belongs to the requests that ran.

Invariants:

* A pipe is watched by the loop, or a timer for it is pending, until it ends.
* What is logged and kept has no escape sequences of a terminal, such as colours.
* A line belongs to the request that ran when its first piece was read.
* An exception that a line causes only costs this line: requests that begin or end are not affected.
"""

from __future__ import annotations

import os
import re
import select
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.runtime import logs
from protocol.runtime.loop import Callback, Loop

KEPT_LINES: Final = 50
MAX_LINE_BYTES: Final = 8192
OUTPUT_BATCH_DELAY_S: Final = 0.01
"""A pipe holds 64 KiB; an engine that writes more within this time waits."""
_TEXT: Final = re.compile(rb"([^\r\n]*+)(?:(\r*+\n)|\r++(?=[^\n]))")
"""A text and what ends it: a newline, or a carriage return, after which a terminal would overwrite it."""
_ESCAPE_SEQUENCE: Final = re.compile(rb"\x1b\[[0-?]*+[ -/]*+[@-~]")
"""ECMA-48's control sequences: colours, movements of the cursor."""


class _Beginning(NamedTuple):
    """The beginning of a line, and the id of the request that it belongs to."""

    text: bytes = b""
    label: str = ""


class OutputReader:
    """Reads the output of one engine."""

    def __init__(
        self,
        loop: Loop,
        log: logs.Logger,
        pid: int,
        label: Callable[[], str],
        fds: list[int],
        parse: Callable[[bytes], tuple[str, str]],
        is_progress: Callable[[bytes], bool] = lambda _line: False,
    ) -> None:
        """Read ``fds``, which become non-blocking.

        ``label`` returns the id of the running request, empty for none or several. ``parse``: see
        :meth:`workers.backends.base.Backend.parse`. ``is_progress`` gets every line, including those that a terminal
        would overwrite, and returns whether the line reports progress. Such lines are not logged.
        """
        self._loop, self._parse, self._is_progress = loop, parse, is_progress
        self._log = log.bind(process="engine", pid=pid)
        self._label = label
        self._beginnings: dict[int, _Beginning] = {}
        """Open pipe → the beginning of its next line."""
        self.last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._open = select.poll()
        """Says which of the pipes have something to read, with one system call instead of one for each empty pipe."""
        for fd in fds:
            os.set_blocking(fd, False)
            self._beginnings[fd] = _Beginning()
            self._open.register(fd, select.POLLIN)
            loop.on_readable(fd, self._reader(fd))

    def _reader(self, fd: int) -> Callback:
        def read() -> None:
            self._read(fd)
            if fd in self._beginnings:
                self._loop.on_readable(fd, None)
                self._loop.call_later(OUTPUT_BATCH_DELAY_S, read_again)

        def read_again() -> None:
            if fd not in self._beginnings:
                return
            if self._read(fd):
                self._loop.call_later(OUTPUT_BATCH_DELAY_S, read_again)
            elif fd in self._beginnings:
                self._loop.on_readable(fd, read)

        return read

    def read_now(self) -> None:
        """Read what the engine wrote so far, even from watched pipes: the loop may not have come to them yet."""
        for fd, _ in self._open.poll(0):
            self._read(fd)

    def _read(self, fd: int) -> bool:
        """Read once; return whether there was something."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._end(fd)
            return False
        label, beginning = self._label(), self._beginnings[fd]
        first_label = beginning.label if beginning.text else label
        data, end = beginning.text + data, 0
        texts: list[tuple[bytes, bool]] = []
        while found := _TEXT.match(data, end):
            texts.append((found[1], found[2] is not None))
            end = found.end()
        rest = data[end:]
        if len(rest) > MAX_LINE_BYTES:
            texts.append((rest, True))
            rest = b""
        self._beginnings[fd] = _Beginning(rest, label if texts else first_label)
        for text, is_line in texts:
            if is_line:
                self._log_line(text, first_label)
            else:
                self._counts_as_progress(text)
            first_label = label
        self._counts_as_progress(rest.rstrip(b"\r"))
        return True

    def _log_line(self, line: bytes, label: str) -> None:
        line = line[:MAX_LINE_BYTES].rstrip(b"\r")
        if self._counts_as_progress(line) or not (line := _ESCAPE_SEQUENCE.sub(b"", line)).strip():
            return
        try:
            level, text = self._parse(line)
            if level != "trace":  # what a client wrote is shown at that level and nowhere else
                self.last_lines.append(text)
            fields = {"request_id": label} if label else {}
            getattr(self._log, level)(text, **fields)
        except Exception as error:  # noqa: BLE001 - a programming error costs one line, not the request that begins or ends
            self._crashed(error)

    def _counts_as_progress(self, text: bytes) -> bool:
        try:
            return self._is_progress(text)
        except Exception as error:  # noqa: BLE001 - as above
            self._crashed(error)
            return True

    def _crashed(self, error: Exception) -> None:
        self._loop.report_error(error, self._log, "a line of the engine's output raised an exception")

    def _end(self, fd: int) -> None:
        self._loop.on_readable(fd, None)
        self._open.unregister(fd)
        self._log_line(*self._beginnings.pop(fd))

    def drain(self) -> None:
        """Read the rest of a dead engine's output, and stop reading."""
        for fd in list(self._beginnings):
            for _ in range(1000):
                if not self._read(fd):
                    break
            if fd in self._beginnings:
                self._end(fd)
