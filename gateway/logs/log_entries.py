"""Log records in the form of the log stream's document, with our JSON fields added to the documented ones. Pure."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec

from protocol.failures import LemonbusError, invalid
from protocol.messages.log_stream import FollowLogs, LogBatch, LogEntry
from protocol.runtime.control_characters import ESCAPES, escape_in_json
from protocol.runtime.logs import LEVEL_RANK, SEVERITY
from protocol.wire.decoding import DECODE_ERRORS

MAX_BACKLOG_ENTRIES: Final = 2000
MAX_BACKLOG_BYTES: Final = 4 * 1024 * 1024
FILTERS: Final = ("model", "level", "request_id", "process")
QUERY_PARAMETERS: Final = (*FILTERS, "boot", "after_seq")
"""Allowed query parameters."""
_MAX_DIGITS: Final = 18
_HEAD_FIELDS: Final = frozenset({"ts", "level", "process", "pid", "event"})
_LEVELS: Final = {severity.lower(): level for level, severity in SEVERITY.items()} | {
    level: level for level in LEVEL_RANK
}
_ESCAPES_IN_LINE: Final = {**ESCAPES, ord("\t"): "\t", ord("\n"): "\\n", ord("\r"): "\\r"}
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode: Final = msgspec.json.Encoder().encode


def render_entry(entry: LogEntry, dropped: int = 0) -> bytes:
    """Return an entry as JSON. ``dropped``: how many entries this reader missed just before it."""
    try:
        fields = _decode(entry.fields)
    except DECODE_ERRORS:
        fields = {"event": entry.fields.decode("utf-8", "replace")}
    stamp = str(fields.get("ts", "")).replace("T", " ").removesuffix("Z")
    severity = SEVERITY.get(str(fields.get("level")), "Info")
    tag = str(fields.get("process") or "server").capitalize()
    lost = dropped + (fields.pop("dropped", 0) or 0)
    documented: dict[str, Any] = {
        "seq": entry.seq,
        "timestamp": stamp,
        "severity": severity,
        "tag": tag,
        "line": f"{stamp} [{severity}] ({tag}) {_render_text(fields)}".translate(_ESCAPES_IN_LINE),
    }
    if lost:
        documented["dropped"] = lost
    return escape_in_json(_encode(documented | {key: value for key, value in fields.items() if key not in documented}))


def _render_text(fields: dict[str, Any]) -> str:
    words = [str(fields.get("event", ""))]
    for key, value in fields.items():
        if key not in _HEAD_FIELDS and value is not None:
            plain = isinstance(value, str) and value and not any(letter in value for letter in " \t\n\"='")
            words.append(f"{key}={value if plain else _encode(value).decode()}")
    return " ".join(words)


def parse_subscription(number: int, message: str | bytes, query: dict[str, str]) -> FollowLogs:
    """Return the call for a ``logs.subscribe`` message. ``query``: the address's :data:`QUERY_PARAMETERS`.

    If ``after_seq`` is beyond the newest entry, the whole snapshot is sent: each start of a server counts from 1 again,
    so the number belongs to an earlier start, and the reader has seen nothing of this one. ``boot``, which each
    snapshot has, makes this certain. Unknown fields are ignored. Raises ``invalid_request`` naming the wrong field.
    """
    try:
        subscribe = _decode(message)
    except (UnicodeEncodeError, *DECODE_ERRORS):  # a text may contain half of a surrogate pair
        raise invalid('expected a JSON object, such as {"type": "logs.subscribe"}') from None
    if subscribe.get("type") != "logs.subscribe":
        raise invalid('`type` must be "logs.subscribe"', "type")
    after = subscribe.get("after_seq")
    if after is None:
        after = parse_after_seq(query.get("after_seq", ""))
    elif isinstance(after, bool) or not isinstance(after, int) or not 0 <= after < 2**63:
        raise _invalid_after_seq()
    texts: dict[str, str] = {}
    for key in (*FILTERS, "boot"):
        value = subscribe.get(key)
        if value is not None and not isinstance(value, str):
            raise invalid(f"`{key}` must be a string", key)
        texts[key] = query.get(key, "") if value is None else value
    texts["level"] = parse_level(texts["level"])
    return FollowLogs(number, after, **texts)


def parse_after_seq(given: str) -> int | None:
    """Return the sequence number in the query, None if there is none; raises ``invalid_request``."""
    if given and not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
        raise _invalid_after_seq()
    return int(given) if given else None


def _invalid_after_seq() -> LemonbusError:
    return invalid("`after_seq` must be null or a whole number", "after_seq")


def parse_level(given: str) -> str:
    """Return our name of a level or severity; raises ``invalid_request``."""
    if given and given.lower() not in _LEVELS:
        raise invalid(f"`level` must be one of {', '.join(LEVEL_RANK)}", "level")
    return _LEVELS[given.lower()] if given else ""


class LogBacklog:
    """Entries that one reader has not been sent yet, up to a limit: the oldest are dropped and counted."""

    def __init__(self) -> None:
        """Start empty."""
        self._entries: deque[LogEntry] = deque()
        self._size = 0
        self.dropped = 0
        """Entries lost since the last :meth:`take`."""

    def put(self, batch: LogBatch) -> None:
        """Add a batch."""
        self.dropped += batch.dropped
        for entry in batch.entries:
            self._entries.append(entry)
            self._size += len(entry.fields)
        while len(self._entries) > MAX_BACKLOG_ENTRIES or self._size > MAX_BACKLOG_BYTES:
            self._size -= len(self._entries.popleft().fields)
            self.dropped += 1

    def take(self) -> tuple[LogEntry, int] | None:
        """Remove and return the oldest entry, and how many were dropped before it."""
        if not self._entries:
            return None
        entry = self._entries.popleft()
        self._size -= len(entry.fields)
        dropped, self.dropped = self.dropped, 0
        return entry, dropped
