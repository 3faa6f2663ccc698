"""The log as a client follows it: the call, answered as :mod:`protocol.messages.calls` says, and the batches after it."""

from __future__ import annotations

import msgspec

from protocol.messages.calls import Repetition, call_message
from protocol.wire.envelope import control_message


@call_message(
    # A log that begins anew has new numbers.
    Repetition(change=lambda call: msgspec.structs.replace(call, after_seq=None, boot=""))
)
class FollowLogs(msgspec.Struct, frozen=True, omit_defaults=True):
    """→ :class:`LogSnapshot`, then :class:`LogBatch` under the same number until :class:`AbandonCall`.

    ``after_seq`` counts only if ``boot`` is empty or the present one, and only if its entry exists: numbers start again
    with each boot. Otherwise the snapshot is complete.
    """

    number: int
    after_seq: int | None = None
    boot: str = ""
    model: str = ""
    level: str = ""
    request_id: str = ""
    process: str = ""
    node: str = ""
    """Only records of processes there, and those that name it; others are of the node ``head``."""


class LogEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One log line with its number in the stream. ``fields`` is the JSON object of the line."""

    seq: int
    fields: bytes


class LogSnapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """The matching entries that are retained, at most 5000. ``dropped``: lines lost before the stream.

    ``retained_since``: the time from which on all entries are retained, matching or not; of the node that the filter names, if it
    names one. Empty if there is none.
    """

    boot: str
    entries: list[LogEntry]
    dropped: int = 0
    retained_since: str = ""


@control_message
class LogBatch(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → gateway: new entries for a follower."""

    number: int
    entries: list[LogEntry]
    dropped: int = 0
