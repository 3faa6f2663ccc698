"""The records of what was counted, for the next supervisor: a checkpoint, and every report since."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.messages.metrics import RequestsObserved
from protocol.messages.work import AnswerLost, AttemptEnded
from supervisor.limits.rate_limiter import KeyLevels
from supervisor.limits.token_budgets import SpentTokens
from supervisor.usage.usage_counts import UnwrittenState


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


Record = EndCounted | EndTakenBack | LossCounted | RequestsCounted | BatchBegun | BatchWritten | KeyLevels | Checkpoint

RECORDS: Final = msgspec.msgpack.Decoder(Record)
