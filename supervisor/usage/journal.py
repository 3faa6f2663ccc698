"""The journal of what was counted, for the next supervisor: a checkpoint, and every report since, in memory that the keeper holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from protocol.messages.metrics import RequestsObserved
from protocol.messages.work import AnswerLost, AttemptEnded
from protocol.runtime import logs
from supervisor.limits.rate_limiter import KeyLevels
from supervisor.limits.token_budgets import SpentTokens
from supervisor.overview.ended_requests import EndedState
from supervisor.persistence.memfd_journal import MemfdJournal
from supervisor.usage.usage_counts import UnwrittenState

_MAX_BYTES: Final = 1024 * 1024
"""A larger journal begins anew with the next checkpoint."""

log = logs.get_logger()


class EndCounted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The end of an attempt was counted at ``at``, in Unix seconds."""

    worker: str
    end: AttemptEnded
    at: float


class EndTakenBack(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The end of an attempt that was counted at ``at`` does not count any more: its request is tried again."""

    end: AttemptEnded
    at: float


class LossCounted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a client got of a lost stream was counted."""

    answer: AnswerLost
    at: float


class RequestsCounted(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a gateway has observed was counted."""

    gateway: str
    observed: RequestsObserved
    at: float


class BatchBegun(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Everything that was counted before is in a batch, which is being written."""


class BatchWritten(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The batch of this number is on the disk."""

    number: int


class Checkpoint(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Everything that was counted, the records before it included. A new release adds fields at the end, with defaults."""

    unwritten: UnwrittenState
    serials: dict[str, list[int]] = {}
    levels: list[KeyLevels] = []
    spent: dict[str, SpentTokens] = {}
    metrics: dict[str, Any] = {}
    totals: dict[str, int] = {}
    """Further counters of the supervisor."""
    knows_stored: bool = False
    """Whether ``spent`` includes what earlier servers have written."""
    ended: EndedState = EndedState()


Record = EndCounted | EndTakenBack | LossCounted | RequestsCounted | BatchBegun | BatchWritten | KeyLevels | Checkpoint

RECORDS: Final = msgspec.msgpack.Decoder(Record)


class CountsJournal:
    """The journal of one supervisor, begun or continued. If it can no longer be written, counting goes on without it."""

    def __init__(self, descriptor: int, hold: Callable[[int], None]) -> None:
        """``descriptor``: of an earlier supervisor's journal; -1 for a new one. ``hold`` gets the descriptor of each new one."""
        self._file: MemfdJournal[Record] | None = MemfdJournal("counts", RECORDS, descriptor)
        self._hold = hold
        self._is_held = descriptor >= 0
        self._checkpoint = b""
        """The last one, as it was written."""

    def since_checkpoint(self) -> Iterator[Record]:
        """Yield the records that matter: the last checkpoint, and what follows it."""
        records: list[Record] = []
        for record in self._file.read() if self._file is not None else ():
            if isinstance(record, Checkpoint):
                records.clear()
            records.append(record)
        yield from records

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, unless it says the same as the last one."""
        encoded = msgspec.msgpack.encode(checkpoint)
        if encoded != self._checkpoint:
            self._checkpoint = encoded
            self.write(checkpoint)

    def write(self, record: Record) -> None:
        """Add a record."""
        file = self._file
        if file is None:
            return
        try:
            if isinstance(record, Checkpoint) and file.size > _MAX_BYTES:
                self._file = new = file.rewritten([record])
                self._hold(new.descriptor)
                file.close()
                return
            file.append(record)
            if not self._is_held:
                self._is_held = True
                self._hold(file.descriptor)
        except OSError as problem:
            log.error("what is counted will be lost with this supervisor", reason=str(problem))  # noqa: TRY400 - no bug
            self._file = None
