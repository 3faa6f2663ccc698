"""Structured logs with structlog: one JSON line per event on stderr from every process, and the same record on the bus.

The processors, in their order: fields of the context (``request_id``), exceptions as text, prompts out, the head in
front. The logger behind them is a :class:`~protocol.runtime.log_output.LogOutput`.

A record's keys: ``ts``, ``level``, ``process``, ``pid``, ``event``; ``node`` of a process that does not run on the head;
where they are known ``model``, ``worker``, ``request_id``; ``exception`` (a traceback); ``dropped`` (records of this process lost just before this one);
and the fields of the event. Prompts are in :data:`PROMPT_FIELDS` of ``trace`` records and nowhere else.
"""

from __future__ import annotations

import os
import sys
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Protocol

from protocol.models.nodes import HEAD
from protocol.runtime.deferred_module import importing_without
from protocol.runtime.journal_priorities import PRIORITIES, stderr_is_journal

# structlog imports rich, if it is installed, for tracebacks that we never render; asyncio, for methods that we never
# call; and its bridges to logging and greenlet, which we do not use. They cost 8 MB and 0.1 s in every process.
with importing_without("asyncio", "logging", "structlog.stdlib", "structlog.threadlocal", absent=["rich"]):
    import structlog

from protocol.runtime.log_output import MAX_BATCHED_LINES, LogOutput, Record, Schedule, Sink

__all__ = [
    "LEVEL_RANK",
    "MAX_BATCHED_LINES",
    "PROMPT_FIELDS",
    "SEVERITY",
    "Logger",
    "Record",
    "bind_request_id",
    "configure",
    "debug_enabled",
    "flush",
    "get_logger",
    "log_batched",
    "set_batching",
    "set_level",
    "set_sink",
    "trace_enabled",
]

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
"""What a client wrote. It is removed from every record that is not ``trace``."""


class Logger(structlog.typing.FilteringBoundLogger, Protocol):
    """A structlog logger that also has ``trace``."""

    def trace(self, event: str, *args: Any, **fields: Any) -> Any:
        """Log at level 5."""

    def bind(self, **new_values: Any) -> Logger:
        """Return a logger that adds these fields."""

    def new(self, **new_values: Any) -> Logger:
        """Return a logger with these fields and no others."""


_output: Final = LogOutput()
_request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")
_process = "?"
_node = ""
"""The node of this process; empty on the head."""
_least = ""
"""The least level that is logged; empty before :func:`configure`."""


# Processors


def _add_request_id(_logger: object, _level: str, fields: Record) -> Record:
    request_id = _request_id.get()
    return {"request_id": request_id, **fields} if request_id else fields


def _remove_prompts(_logger: object, level: str, fields: Record) -> Record:
    if level != "trace" and not PROMPT_FIELDS.isdisjoint(fields):
        for key in PROMPT_FIELDS & fields.keys():
            del fields[key]
    return fields


def _put_head_first(_logger: object, level: str, fields: Record) -> Record:
    """Return the record: the keys that every record has, then the fields. A field replaces a key of the same name."""
    now = time.time()
    record: Record = {
        "ts": f"{_second(int(now))}{int(now * 1000) % 1000:03d}Z",
        "level": level,
        "process": _process,
        "pid": _pid(),
        "event": "",
    }
    if _node:
        record["node"] = _node
    record.update(fields)
    return record


def _to_output(_logger: object, _level: str, record: Record) -> tuple[tuple[Record], dict[str, Any]]:
    return (record,), {}


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.")


_pid = os.getpid


# Setting up


def configure(process: str, level: str, style: str = "auto", node: str = HEAD) -> None:
    """Set up this process's logging: its name in every record, the least level, and ``json``, ``console`` or ``auto``.

    ``node``: where it runs. ``auto`` renders for people if stderr is a terminal. Each line to systemd's journal begins with its priority. An
    exception that ends the process is also one line.
    """
    global _process, _node
    flush()
    _process, _node = process, "" if node == HEAD else node
    _use_level(level)
    console = style == "console" or (style == "auto" and os.isatty(2))
    _output.priorities = PRIORITIES if stderr_is_journal() else {}
    _output.render = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False) if console else None
    structlog.configure(
        processors=[
            _add_request_id,
            structlog.processors.format_exc_info,
            _remove_prompts,
            _put_head_first,
            _to_output,
        ],
        wrapper_class=_BoundLogger,
        logger_factory=lambda *_: _output,
        cache_logger_on_first_use=False,
    )
    sys.excepthook = _uncaught


def set_level(level: str) -> None:
    """Log from this level on, in all loggers that there are. Does nothing before :func:`configure`, or without a level."""
    if level and _least and level != _least:
        _use_level(level)


class _BoundLogger(structlog.BoundLoggerBase):
    """Its methods are those of the present level. So a logger that was bound before a change obeys it."""


def _use_level(level: str) -> None:
    global _least  # noqa: PLW0603 - of this process, as its logging is
    _least = level
    for name, method in vars(_bound_class(level)).items():
        if not name.startswith("__"):
            setattr(_BoundLogger, name, method)


def _bound_class(level: str) -> type[structlog.typing.FilteringBoundLogger]:
    def trace(self: Any, event: str, *args: Any, **fields: Any) -> Any:
        return self._proxy_to_logger("trace", event % args if args else event, **fields)

    def silent(_self: Any, _event: str, *_args: Any, **_fields: Any) -> None:
        return None

    everything = level == "trace"
    base = structlog.make_filtering_bound_logger(0 if everything else LEVEL_RANK[level])
    return type(f"LoggerAt{level.capitalize()}", (), {**vars(base), "trace": trace if everything else silent})


def _uncaught(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    get_logger().critical("uncaught exception", exc_info=(kind, problem, trace))


def set_sink(sink: Sink | None) -> None:
    """Also send every record, as a JSON object, to ``sink``, which must neither block nor raise."""
    _output.sink = sink


def set_batching(schedule: Schedule | None) -> None:
    """Let records of :func:`log_batched` wait until ``schedule`` calls back.

    None: waiting records are written at once.
    """
    _output.schedule = schedule
    flush()


# Logging


def get_logger(**fields: object) -> Logger:
    """Return a logger that puts ``fields`` into every record."""
    logger: Logger = structlog.get_logger(**fields)
    return logger


def log_batched(level: str, event: str, fields: Record) -> None:
    """Log a record now, but write it together with those of the next moment (see :func:`set_batching`).

    For the one record that every request has: it takes a third of a logger's time. Fields of the context are not added.
    """
    if _least and LEVEL_RANK[level] >= LEVEL_RANK[_least]:
        record = _put_head_first(None, level, _remove_prompts(None, level, fields))
        record["event"] = event
        _output.write_soon(record)


def flush() -> None:
    """Write the waiting records. Idempotent."""
    _output.flush()


def bind_request_id(request_id: str) -> None:
    """Put a request's id into every record of the present context (a thread, a greenlet) from now on.

    An empty id ends this.
    """
    _request_id.set(request_id)


def trace_enabled() -> bool:
    """Return whether ``trace`` records are written. If not, prompts need not be decoded for them."""
    return _least == "trace"


def debug_enabled() -> bool:
    """Return whether ``debug`` records are written. If not, what only they show need not be computed."""
    return _least in ("debug", "trace")
