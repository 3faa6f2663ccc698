"""Log records as JSON objects of bounded size, and where they go: to a sink (the bus) as JSON, and to stderr as JSON or in a form for people.

A line is one write of at most 4,096 bytes, because longer writes of several processes into one pipe break each other
(measured). Nothing here blocks or raises. If the reader cannot take a line, it is dropped, and the next line says how
many were.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, MutableMapping
from select import POLLOUT, poll  # by name: gevent's replacement would block in its event loop
from typing import Any, Final

import msgspec

from protocol.runtime.control_characters import ESCAPES, escape_in_json

MAX_LINE_BYTES: Final = 4096
MAX_RECORD_BYTES: Final = MAX_LINE_BYTES - 32
"""The rest of the line holds a newline and a ``dropped`` count."""
CUT_MARK: Final = "…[cut]"
MAX_BATCHED_LINES: Final = 256
"""How many lines may wait for each other."""
_FIRST: Final = ("ts", "level", "process", "pid", "event", "model", "worker", "request_id")
_ESCAPES: Final = {**ESCAPES, ord("\t"): "\t", ord("\n"): "\\n"}
_ESCAPES_IN_LINES: Final = {**_ESCAPES, ord("\n"): "\n"}
"""For a traceback, which has several lines. Any other text must not look like several records."""


class DropCounter:
    """A sink in front of something that may be full.

    It counts refused records, and the next record says how many there were.
    """

    def __init__(self, send: Callable[[bytes], bool]) -> None:
        """``send`` returns whether it took the record; it neither blocks nor raises."""
        self._send = send
        self._unreported = 0
        self.dropped = 0
        """Records lost so far."""

    def __call__(self, record: bytes, count: int = 1) -> None:
        """Send a record (or ``count`` records in one piece), or count it as dropped."""
        if self._send(with_dropped(record, self._unreported) if self._unreported else record):
            self._unreported = 0
        else:
            self._unreported += count
            self.dropped += count


def with_dropped(record: bytes, lost: int) -> bytes:
    """Return the JSON object, which a priority may precede; if records were lost, ``"dropped": lost`` comes first in it."""
    start = record.index(b"{") + 1
    return record[:start] + b'"dropped":%d,' % lost + record[start:] if lost else record


def fit_record(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
    """Return the record and its JSON object of at most ``MAX_RECORD_BYTES`` bytes: long fields are cut and marked."""
    line = _encoded(record)
    limit = MAX_LINE_BYTES // 2
    while len(line) > MAX_RECORD_BYTES:
        if limit >= 16:
            record = {key: _cut(key, value, limit) for key, value in record.items()}
            limit //= 2
        else:
            record = {key: record[key] for key in _FIRST if key in record} | {"cut": f"{len(record)} fields"}
        line = _encoded(record)
    return record, line


def _cut(key: str, value: Any, limit: int) -> Any:
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    text = value if isinstance(value, str) else _encoded(value).decode()
    if len(text) <= limit:
        return value
    # The end of a traceback says what happened.
    return CUT_MARK + text[-limit:] if key == "exception" else text[:limit] + CUT_MARK


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a log line must not fail because of what it shows
        return f"<{type(value).__name__}>"


_encode = msgspec.json.Encoder(enc_hook=_shown).encode


def _encoded(value: Any) -> bytes:
    return escape_in_json(_encoded_as_it_is(value))


def _encoded_as_it_is(value: Any) -> bytes:
    try:
        return _encode(value)
    except Exception:  # noqa: BLE001 - lone surrogates, huge integers, deep nesting, strange keys
        if isinstance(value, Mapping):
            return _encode({str(key).encode("utf-8", "replace").decode(): _plain(each) for key, each in value.items()})
        return _encode(_plain(value))


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    text = value if isinstance(value, str) else _shown(value)
    return text.encode("utf-8", "replace").decode()


Record = MutableMapping[str, Any]
Sink = Callable[[bytes], object]
Schedule = Callable[[Callable[[], None]], object]
"""Calls back once, a moment later."""
ConsoleRenderer = Callable[[Any, str, Record], object]
"""(logger, level, record) → the line for people, as ``structlog.dev.ConsoleRenderer`` has it."""

_stderr: Final = poll()
_stderr.register(2, POLLOUT)


class LogOutput:
    """Writes records; the logger at the end of structlog's processors."""

    def __init__(self) -> None:
        """Write JSON to stderr, and to no sink."""
        self.sink: Sink | None = None
        self.render: ConsoleRenderer | None = None
        """Makes the lines on stderr for people, instead of JSON."""
        self.priorities: Mapping[str, bytes] = {}
        """Level → the prefix of a line on stderr."""
        self.schedule: Schedule | None = None
        """Wakes the process to write waiting records. Without it, no record waits."""
        self._lines = DropCounter(lambda line: write_line(line + b"\n"))
        self._dropped = 0
        self._waiting: list[Record] = []

    def write(self, record: Record) -> None:
        """Write a record, after those that wait."""
        self._write([*self._take(), record])

    trace = debug = info = warning = error = critical = write

    def write_soon(self, record: Record) -> None:
        """Write a record together with those that come within a moment; at once if nothing can wake us later."""
        self._waiting.append(record)
        if self.schedule is None or len(self._waiting) >= MAX_BATCHED_LINES:
            self.flush()
        elif len(self._waiting) == 1:
            self.schedule(self.flush)

    def flush(self) -> None:
        """Write what waits. Idempotent."""
        if self._waiting:
            self._write(self._take())

    def _take(self) -> list[Record]:
        taken, self._waiting = self._waiting, []
        return taken

    def _write(self, records: list[Record]) -> None:
        """Write records, as many at once as one write may hold."""
        batch: list[bytes] = []
        size = 0
        for record in records:
            fitted, line = fit_record(record)
            if self.sink is not None:
                self.sink(line)
            if self.render is not None:
                self._show(self.render, fitted)
                continue
            if self.priorities:
                line = self.priorities.get(str(record["level"]), b"") + line
            if batch and size + len(line) > MAX_RECORD_BYTES:
                self._lines(b"\n".join(batch), len(batch))
                batch, size = [], 0
            batch.append(line)
            size += len(line) + 1
        if batch:
            self._lines(b"\n".join(batch), len(batch))

    def _show(self, render: ConsoleRenderer, record: Mapping[str, Any]) -> None:
        shown: Record = {
            key: value.translate(_ESCAPES_IN_LINES if key == "exception" else _ESCAPES)
            if isinstance(value, str)
            else value
            for key, value in record.items()
        }
        shown["timestamp"] = shown.pop("ts", "")
        shown.pop("pid", None)
        if self._dropped:
            shown["dropped"] = self._dropped
        line = str(render(None, str(record["level"]), shown)).encode("utf-8", "replace")
        priority = self.priorities.get(str(record["level"]), b"")
        line = priority + line.replace(b"\n", b"\n" + priority)
        if len(line) >= MAX_LINE_BYTES:
            end = b"\x1b[0m" + CUT_MARK.encode() if sys.stderr.isatty() else CUT_MARK.encode()
            line = line[: MAX_LINE_BYTES - 1 - len(end)].decode("utf-8", "ignore").encode() + end
        self._dropped = 0 if write_line(line + b"\n") else self._dropped + 1


def write_line(line: bytes) -> bool:
    """Write one line unless that would block, and return whether it was written.

    A pipe that polls writable takes 4,096 bytes.
    """
    try:
        if not _stderr.poll(0):
            return False
        os.write(2, line)
    except OSError:
        return False  # the reader of stderr has ended; this process must go on
    return True
