"""Records for a retained log."""

from __future__ import annotations

import json
from typing import Any

from protocol.messages.log_stream import LogEntry
from supervisor.runtime.retained_log import (
    MAX_RETAINED,
    RetainedLog,
)


def record(event: str = "e", **fields: Any) -> bytes:
    return json.dumps(
        {"ts": "2026-01-02T03:04:05.678Z", "level": "info", "process": "worker", "event": event, **fields}
    ).encode()


def filled(count: int, retained: int = MAX_RETAINED) -> RetainedLog:
    book = RetainedLog("boot", retained)
    for number in range(1, count + 1):
        book.append(record(str(number)))
    return book


def seqs(entries: list[LogEntry]) -> list[int]:
    return [entry.seq for entry in entries]
