"""Structured logs: one JSON line an event on stderr from every process, and the same record on the bus.

A line is one write of at most 4,096 bytes, because longer ones of several writers on one pipe break each
other (measured); longer fields are cut and marked.  Nothing here blocks or raises: a line that its reader
has no room for is dropped, and the next one says how many were.  Lines that come in numbers (:func:`later`) wait a
moment for each other where somebody wakes us for them (:func:`gather`); any other line goes after them, at once.

A record's keys: ``ts``, ``level``, ``process``, ``pid``, ``event``; where they are known ``model``, ``worker``,
``request_id``; ``exception`` (a traceback); ``dropped`` (records of this process lost just before this one);
and whatever the event adds.  Prompts are in :data:`PROMPT_FIELDS` of ``trace`` records and nowhere else.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from select import POLLOUT, poll  # by name: gevent's replacement would block in its event loop
from types import TracebackType
from typing import Any, Final, Protocol

# structlog imports rich if it is installed: 5 MB and 0.1 s in every process, for tracebacks that we never render.
_hidden = "rich" not in sys.modules
if _hidden:
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402

if _hidden:
    del sys.modules["rich"]

from protocol.runtime.log_records import CUT_MARK, MAX_LINE_BYTES, MAX_RECORD_BYTES, DropCounter, fit_record  # noqa: E402

LEVEL_RANK: Final = {"trace": 5, "debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
SEVERITY: Final = {
    "trace": "Trace",
    "debug": "Debug",
    "info": "Info",
    "warning": "Warning",
    "error": "Error",
    "critical": "Fatal",
}
"""The severities of the log stream's document."""
PROMPT_FIELDS: Final = frozenset({"prompt", "messages", "input", "body"})
"""What a client wrote: taken out of every record that is not ``trace``."""
MAX_BATCHED_LINES: Final = 256
"""Lines that :func:`gather` keeps back at most."""
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160)) if code not in (9, 10)}

Sink = Callable[[bytes], object]
Record = MutableMapping[str, Any]


class Logger(structlog.typing.FilteringBoundLogger, Protocol):
    """A structlog logger that knows ``trace`` too."""

    def trace(self, event: str, *args: Any, **fields: Any) -> Any:
        """Log at level 5."""

    def bind(self, **new_values: Any) -> Logger:
        """Return a logger that adds these fields."""

    def new(self, **new_values: Any) -> Logger:
        """Return a logger with these fields and no others."""


_Line = tuple[float, str, str, Record]
"""When, its level, the request of its context, its fields."""
Schedule = Callable[[Callable[[], None]], object]
"""Calls back once, a moment later."""

_label: ContextVar[str] = ContextVar("request_id", default="")
_sink: Sink | None = None
_process = "?"
_least = "info"
_output: _Output | None = None
_schedule: Schedule | None = None
_waiting: list[_Line] = []


def set_sink(sink: Sink | None) -> None:
    """Send every record, as a JSON object, to ``sink`` too. It must neither block nor raise."""
    global _sink  # noqa: PLW0603 - one process, one stderr, one sink
    _sink = sink


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.")


def _record(now: float, method: str, label: str, fields: Record) -> Record:
    """Return the record of a line: what every one has first, then the request of its context, then its own."""
    record: Record = {
        "ts": f"{_second(int(now))}{int(now * 1000) % 1000:03d}Z",
        "level": fields.pop("level", method),
        "process": fields.pop("process", _process),
        "pid": fields.pop("pid", None) or os.getpid(),
        "event": fields.pop("event", ""),
    }
    if label:
        record["request_id"] = label
    record.update(fields)
    if method != "trace":
        for key in PROMPT_FIELDS & record.keys():
            del record[key]
    return record


class _Output:
    """The one processor: makes the record, hands it to the sink and writes the line."""

    def __init__(self, console: bool) -> None:
        self._stderr = DropCounter(lambda line: _write(line + b"\n"))
        self._owed = 0
        self._render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False) if console else None

    def __call__(self, logger: object, method: str, fields: Record) -> str:
        if "exc_info" in fields:
            structlog.processors.format_exc_info(logger, method, fields)
        self.write([*_take_batch(), (time.time(), method, _label.get(), fields)])
        raise structlog.DropEvent

    def write(self, lines: list[_Line]) -> None:
        """Write lines: as many together as one write may hold."""
        batch: list[bytes] = []
        size = 0
        for now, method, label, fields in lines:
            fitted, line = fit_record(_record(now, method, label, fields))
            if _sink is not None:
                _sink(line)
            if self._render is not None:
                self._show(self._render, method, fitted)
                continue
            if size + len(line) > MAX_RECORD_BYTES:
                self._stderr(b"\n".join(batch), len(batch))
                batch, size = [], 0
            batch.append(line)
            size += len(line) + 1
        if batch:
            self._stderr(b"\n".join(batch), len(batch))

    def _show(self, render: structlog.dev.ConsoleRenderer, method: str, record: Mapping[str, Any]) -> None:
        shown: Record = {
            key: value.translate(_CONTROLS) if isinstance(value, str) else value for key, value in record.items()
        }
        shown["timestamp"] = shown.pop("ts", "")
        shown.pop("pid", None)
        if self._owed:
            shown["dropped"] = self._owed
        line = str(render(None, method, shown)).encode("utf-8", "replace")
        if len(line) >= MAX_LINE_BYTES:
            end = b"\x1b[0m" + CUT_MARK.encode() if sys.stderr.isatty() else CUT_MARK.encode()
            line = line[: MAX_LINE_BYTES - 1 - len(end)].decode("utf-8", "ignore").encode() + end
        self._owed = 0 if _write(line + b"\n") else self._owed + 1


_stderr = poll()
_stderr.register(2, POLLOUT)


def _write(line: bytes) -> bool:
    """Write one line if that cannot block: a pipe that polls writable has room for 4,096 bytes."""
    try:
        if not _stderr.poll(0):
            return False
        os.write(2, line)
    except OSError:
        return False  # a reader of our stderr that went away must not take the house with it
    return True


def _bound_class(level: str) -> type[structlog.typing.FilteringBoundLogger]:
    def trace(self: Any, event: str, *args: Any, **fields: Any) -> Any:
        return self._proxy_to_logger("trace", event % args if args else event, **fields)

    def silent(_self: Any, _event: str, *_args: Any, **_fields: Any) -> None:
        return None

    everything = level == "trace"
    base = structlog.make_filtering_bound_logger(0 if everything else LEVEL_RANK[level])
    return type(f"LoggerAt{level.capitalize()}", (base,), {"trace": trace if everything else silent})


def configure(process: str, level: str, style: str = "auto") -> None:
    """Set this process's logging up: its name in every line, the least level, ``json``/``console``/``auto``.

    ``auto`` renders for people if stderr is a terminal.  An exception that ends the process is one line too.
    """
    global _process, _least, _output  # noqa: PLW0603
    flush()
    _process, _least = process, level
    console = style == "console" or (style == "auto" and os.isatty(2))
    _output = _Output(console)
    structlog.configure(
        processors=[_output],
        wrapper_class=_bound_class(level),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    sys.excepthook = _uncaught


def _uncaught(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    get_logger().critical("uncaught exception", exc_info=(kind, problem, trace))


def set_batching(schedule: Schedule | None) -> None:
    """Let lines of :func:`later` wait until ``schedule`` calls back; None: what waits is written, and nothing waits."""
    global _schedule  # noqa: PLW0603
    _schedule = schedule
    flush()


def log_batched(level: str, event: str, fields: Record) -> None:
    """Log a line of this moment like others, but with those that come within the next (see :func:`gather`).

    ``fields`` is ours from now on.  The request of the context is not looked at.
    """
    if _output is None or LEVEL_RANK[level] < LEVEL_RANK[_least]:
        return
    fields["event"] = event
    _waiting.append((time.time(), level, "", fields))
    if _schedule is None or len(_waiting) >= MAX_BATCHED_LINES:
        flush()
    elif len(_waiting) == 1:
        _schedule(flush)


def flush() -> None:
    """Write what waits. Idempotent."""
    if _waiting and _output is not None:
        _output.write(_take_batch())


def _take_batch() -> list[_Line]:
    """Return what waits, which does so no longer."""
    global _waiting
    taken, _waiting = _waiting, []
    return taken


def bind_request_id(label: str) -> None:
    """Put the id of a request into every line of the present context (a thread, a greenlet) from now on."""
    _label.set(label)


def trace_enabled() -> bool:
    """Return whether ``trace`` records are written: prompts need not be decoded for nothing otherwise."""
    return _least == "trace"


def get_logger(**fields: object) -> Logger:
    """Return a logger that puts ``fields`` into every line."""
    logger: Logger = structlog.get_logger(**fields)
    return logger
