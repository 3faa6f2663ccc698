"""Log records in the form of the log stream's document, with our JSON fields added to the documented ones. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, structs

from gateway.http.bodies import body_decoding
from protocol.failures import DECODE_ERRORS, invalid
from protocol.messages.log_stream import FollowLogs, LogBatch, LogEntry
from protocol.runtime.control_characters import ESCAPES, escape_in_json
from protocol.runtime.logs import LEVEL_RANK, SEVERITY

MAX_BACKLOG_ENTRIES: Final = 2000
MAX_BACKLOG_BYTES: Final = 4 * 1024 * 1024
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
    stamp = time_stamp(str(fields.get("ts", "")))
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


def time_stamp(moment: str) -> str:
    """Return a record's time as the document has it: in UTC, without a mark of it."""
    return moment.replace("T", " ").removesuffix("Z")


def _render_text(fields: dict[str, Any]) -> str:
    words = [str(fields.get("event", ""))]
    for key, value in fields.items():
        if key not in _HEAD_FIELDS and value is not None:
            plain = isinstance(value, str) and value and not any(letter in value for letter in " \t\n\"='")
            words.append(f"{key}={value if plain else _encode(value).decode()}")
    return " ".join(words)


class LogQuery(msgspec.Struct):
    """Which entries to send; `after_seq` and `boot` resume where an earlier reader stopped."""

    model: str = ""
    level: str = ""
    request_id: str = ""
    process: str = ""
    node: str = ""
    boot: str = ""
    after_seq: Annotated[int, Meta(ge=0, lt=10**18)] | None = None

    def __post_init__(self) -> None:
        """Raise ``invalid_request`` for an unknown level; severities are also levels."""
        if self.level and self.level.lower() not in _LEVELS:
            raise invalid(f"`level` must be one of {', '.join(LEVEL_RANK)}", "level")
        self.level = _LEVELS.get(self.level.lower(), "")


class Subscription(LogQuery, kw_only=True):
    """The message with which a reader subscribes. Its fields override those in the address."""

    type: Literal["logs.subscribe"]


def parse_query(given: Mapping[str, str | None]) -> LogQuery:
    """Return the parameters of the address, of which empty ones are absent; raises ``invalid_request``."""
    known = {name: given[name] for name in LogQuery.__struct_fields__ if given.get(name)}
    return body_decoding.convert(known, LogQuery, strict=False)


def parse_subscription(number: int, message: str | bytes, query: LogQuery) -> FollowLogs:
    """Return the call for a ``logs.subscribe`` message.

    If ``after_seq`` is beyond the newest entry, the whole snapshot is sent: each start of a server counts from 1 again,
    so the number belongs to an earlier start, and the reader has seen nothing of this one. ``boot``, which each
    snapshot has, makes this certain. Unknown fields are ignored. Raises ``invalid_request`` naming the wrong field.
    """
    try:
        given = _decode(message)
    except (UnicodeEncodeError, *DECODE_ERRORS):  # a text may contain half of a surrogate pair
        raise invalid('expected a JSON object, such as {"type": "logs.subscribe"}') from None
    own = {name: value for name, value in given.items() if value is not None}
    wanted = body_decoding.convert({**structs.asdict(query), **own}, Subscription)
    return FollowLogs(number, **{name: getattr(wanted, name) for name in LogQuery.__struct_fields__})


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
