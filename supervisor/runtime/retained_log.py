"""The retained log: numbered records, readers that follow it, and the count of entries that each of them missed.

The supervisor passes in every record, its own and its children's, and each gets the next number. Numbers belong to one
boot. Nothing here grows without bound: records are kept up to a number, so is a follower's backlog, and entries that a
follower could not be sent in time are counted.

Each node has a fair share: one that writes much displaces its own oldest records, not those of others.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from protocol.messages.log_stream import FollowLogs, LogBatch, LogEntry, LogSnapshot
from protocol.models.nodes import HEAD
from protocol.runtime.log_output import MAX_LINE_BYTES
from protocol.runtime.logs import LEVEL_RANK

MAX_RETAINED: Final = 5000
MAX_RETAINED_BYTES: Final = 3 * 1024 * 1024
"""Bytes of all retained records: a server whose log is full needs about 5 MB more memory than one that just started."""
MAX_SNAPSHOT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of records in one snapshot, which is one message."""
MAX_BATCH_ENTRIES: Final = 256
"""Entries in one message."""
MAX_BACKLOG_ENTRIES: Final = 2000
"""Entries that may wait for one follower. Beyond that, the oldest are dropped."""
MAX_FOLLOWERS: Final = 64
"""Readers of one gateway."""


class _RecordFields(msgspec.Struct):
    """The fields of a record that filters compare."""

    level: str = "info"
    process: str = ""
    model: str | None = None
    request_id: str | None = None
    node: str | None = None
    dropped: int = 0


class _RecordTime(msgspec.Struct):
    """When a record was written: it is only decoded for a snapshot."""

    ts: Any = ""


class _RetainedRecord:
    """An entry, and what filters compare."""

    __slots__ = ("entry", "model", "node", "process", "rank", "request_id")

    def __init__(self, entry: LogEntry, fields: _RecordFields) -> None:
        self.entry = entry
        self.rank = LEVEL_RANK.get(fields.level, LEVEL_RANK["info"])
        self.process = sys.intern(fields.process)  # thousands of records share a few of these
        self.model = sys.intern(fields.model) if fields.model else None
        self.request_id = fields.request_id
        self.node = sys.intern(fields.node) if fields.node else HEAD

    def matches(self, filters: FollowLogs, min_rank: int) -> bool:
        return (
            self.rank >= min_rank
            and (not filters.model or filters.model == self.model)
            and (not filters.request_id or filters.request_id == self.request_id)
            and (not filters.process or filters.process == self.process)
            and (not filters.node or filters.node == self.node)
        )


class _NodeRecords:
    """The retained records of one node, the oldest first."""

    __slots__ = ("forgets", "records", "size")

    def __init__(self) -> None:
        self.records: deque[_RetainedRecord] = deque()
        self.size = 0
        """Bytes."""
        self.forgets = False
        """Whether there were older ones."""

    def append(self, record: _RetainedRecord) -> None:
        self.records.append(record)
        self.size += len(record.entry.fields)

    def forget_oldest(self) -> int:
        """Return its size."""
        size = len(self.records.popleft().entry.fields)
        self.size -= size
        self.forgets = True
        return size


class _Follower:
    """One reader: its filters, its backlog, and the number of entries that it lost."""

    __slots__ = ("backlog", "dropped", "filters", "min_rank")

    def __init__(self, filters: FollowLogs) -> None:
        self.filters = filters
        self.min_rank = _min_rank(filters)
        self.backlog: deque[LogEntry] = deque()
        self.dropped = 0

    def offer(self, kept: _RetainedRecord) -> None:
        if not kept.matches(self.filters, self.min_rank):
            return
        if len(self.backlog) >= MAX_BACKLOG_ENTRIES:
            self.backlog.popleft()
            self.dropped += 1
        self.backlog.append(kept.entry)

    def take(self) -> LogBatch:
        entries = [self.backlog.popleft() for _ in range(min(MAX_BATCH_ENTRIES, len(self.backlog)))]
        dropped, self.dropped = self.dropped, 0
        return LogBatch(self.filters.number, entries, dropped)


def _min_rank(filters: FollowLogs) -> int:
    if filters.level and filters.level not in LEVEL_RANK:
        raise invalid(f"level must be one of {', '.join(LEVEL_RANK)}, not {filters.level[:64]!r}", "level")
    return LEVEL_RANK[filters.level] if filters.level else 0


_decode_fields = msgspec.json.Decoder(_RecordFields).decode
_decode_time = msgspec.json.Decoder(_RecordTime).decode


class RetainedLog:
    """The records of one boot, and their followers."""

    def __init__(self, boot: str, retained: int = MAX_RETAINED) -> None:
        """Keep the last ``retained`` records (at most 5000)."""
        self.boot = boot
        self.refused = 0
        """Records that were too long or not log records."""
        self.lost = 0
        """Records that their senders say they dropped, and the refused ones."""
        self._seq = 0
        self._most = max(1, min(retained, MAX_RETAINED))
        self._count = self._bytes = 0
        """Of all retained records."""
        self._nodes: dict[str, _NodeRecords] = {}
        self._followers: dict[str, dict[int, _Follower]] = {}

    @property
    def last_seq(self) -> int:
        """The number of the newest record, 0 if there is none."""
        return self._seq

    def append(self, record: bytes) -> LogEntry | None:
        """Number and keep a record; ``None`` if it is too long or not a log record (counted)."""
        try:
            if len(record) > MAX_LINE_BYTES:
                raise msgspec.ValidationError("too long")
            record.decode()  # msgspec does not validate strings that it skips
            fields = _decode_fields(record)
        except DECODE_ERRORS:
            self.refused += 1
            self.lost += 1
            return None
        self.lost += max(0, fields.dropped)
        self._seq += 1
        kept = _RetainedRecord(LogEntry(self._seq, record), fields)
        self._retain(kept)
        for followers in self._followers.values():
            for follower in followers.values():
                follower.offer(kept)
        return kept.entry

    def _retain(self, record: _RetainedRecord) -> None:
        own = self._nodes.get(record.node)
        if own is None:
            own = self._nodes[record.node] = _NodeRecords()
        own.append(record)
        self._count += 1
        self._bytes += len(record.entry.fields)
        while self._count > self._most:
            has_more = len(own.records) * len(self._nodes) > self._most and len(own.records) > 1
            self._forget_one(
                record.node if has_more else max(self._nodes, key=lambda node: len(self._nodes[node].records))
            )
        while self._bytes > MAX_RETAINED_BYTES:
            has_more = own.size * len(self._nodes) > MAX_RETAINED_BYTES
            self._forget_one(record.node if has_more else max(self._nodes, key=lambda node: self._nodes[node].size))

    def _forget_one(self, node: str) -> None:
        """Forget the oldest record of a node that has more than its share."""
        kept = self._nodes[node]
        self._bytes -= kept.forget_oldest()
        self._count -= 1
        if not kept.records:
            del self._nodes[node]

    def _newest_first(self) -> Iterator[_RetainedRecord]:
        each = (reversed(kept.records) for kept in self._nodes.values())
        return heapq.merge(*each, key=lambda record: -record.entry.seq)

    def _since(self, node: str) -> str:
        """Return from which time on all records are retained, of one node or of all (empty); empty if there are none."""
        nodes = [kept for name, kept in self._nodes.items() if not node or node == name]
        if not nodes:
            return ""
        oldest = min(kept.records[0].entry.seq for kept in nodes)
        begin = max((kept.records[0].entry.seq for kept in nodes if kept.forgets), default=oldest)
        entry = next(kept.records[0].entry for kept in nodes if kept.records[0].entry.seq == begin)
        return str(_decode_time(entry.fields).ts)

    def snapshot(self, filters: FollowLogs) -> LogSnapshot:
        """Return the retained entries that match.

        ``after_seq`` counts if it can belong to this boot: no other boot is named, and it is not beyond the newest.
        ``dropped`` counts records of this boot that were lost on their way here, those after ``after_seq`` that are no
        longer kept, and those beyond the size of one message. Raises ``invalid_request`` for an unknown level.
        """
        min_rank = _min_rank(filters)
        after = filters.after_seq
        if after is None or after < 0 or after > self._seq or filters.boot not in ("", self.boot):
            after = None
        dropped = self.lost
        entries: list[LogEntry] = []
        size = later = 0
        for kept in self._newest_first():
            if kept.entry.seq <= (after or 0):
                break
            later += 1
            if not kept.matches(filters, min_rank):
                continue
            size += len(kept.entry.fields)
            if size > MAX_SNAPSHOT_BYTES:
                dropped += 1
            else:
                entries.append(kept.entry)
        if after is not None:
            dropped += self._seq - after - later
        entries.reverse()
        return LogSnapshot(self.boot, entries, dropped, self._since(filters.node))

    def follow(self, peer: str, filters: FollowLogs) -> None:
        """From now on, collect entries for this reader; raises ``invalid_request`` or ``overloaded``."""
        follower = _Follower(filters)
        followers = self._followers.setdefault(peer, {})
        if len(followers) >= MAX_FOLLOWERS and filters.number not in followers:
            raise Failure(
                Code.OVERLOADED, f"{MAX_FOLLOWERS} readers already follow the log through this gateway", retry_after=5
            ).raised()
        followers[filters.number] = follower

    def forget(self, peer: str, number: int) -> None:
        """Stop collecting for one reader. Unknown ones are ignored."""
        followers = self._followers.get(peer, {})
        followers.pop(number, None)
        if not followers:
            self._followers.pop(peer, None)

    def forget_peer(self, peer: str) -> None:
        """Stop collecting for all readers of a gateway."""
        self._followers.pop(peer, None)

    def batches(self, is_reading: Callable[[str], bool] = lambda _peer: True) -> list[tuple[str, LogBatch]]:
        """Return the batches to send now: each reader's backlog, in bounded batches.

        ``is_reading`` says whether a peer's outbox is empty. Readers of other peers keep their bounded backlog.
        """
        found = []
        for peer, followers in self._followers.items():
            behind = [follower for follower in followers.values() if follower.backlog]
            if behind and is_reading(peer):
                for follower in behind:
                    while follower.backlog:
                        found.append((peer, follower.take()))
        return found
