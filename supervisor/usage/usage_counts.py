"""What an attempt has used, and what is not on the disk yet, in the order in which it gets there: one batch at a time. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

import msgspec

from protocol.messages.events import Outcome
from protocol.messages.usage import UsageRow
from protocol.messages.work import AttemptEnded
from protocol.times import day_of


def usage_of(end: AttemptEnded, at: float) -> UsageRow:
    """Return what an attempt has used that ended at ``at``, in Unix seconds."""
    outcome = end.outcome or Outcome(end.prompt_tokens, 0, end.tokens, total_s=end.seconds)
    return UsageRow(
        day_of(at),
        end.api_key,
        end.model,
        requests=int(end.outcome is not None and not end.more),
        prompt_tokens=outcome.prompt_tokens,
        cached_tokens=outcome.cached_tokens,
        output_tokens=outcome.output_tokens,
        engine_seconds=outcome.total_s,
    )


def taking_back(row: UsageRow) -> UsageRow:
    """Return the row that takes another one back, except for its engine time: the engine has worked."""
    counts = ("requests", "prompt_tokens", "cached_tokens", "output_tokens")
    return msgspec.structs.replace(row, engine_seconds=0.0, **{name: -getattr(row, name) for name in counts})


class UsageCounts:
    """The sums of each day, key and model."""

    def __init__(self, rows: Iterable[UsageRow] = ()) -> None:
        """Begin with these rows."""
        self._rows: dict[tuple[str, str, str], UsageRow] = {}
        for row in rows:
            self.add(row)

    def __bool__(self) -> bool:
        return bool(self._rows)

    def add(self, row: UsageRow) -> None:
        """Add the figures of a row."""
        names = row.names
        present = self._rows.get(names)
        self._rows[names] = row if present is None else present.plus(row)

    def rows(self) -> list[UsageRow]:
        """Return a row for each day, key and model."""
        return [self._rows[names] for names in sorted(self._rows)]


class Batch(msgspec.Struct, frozen=True, array_like=True):
    """Usage that is written in one transaction, together with its number, so that it is never written twice."""

    server: str
    """Differs between two starts of a server, not between its supervisors."""
    number: int
    rows: list[UsageRow]


class UnwrittenUsage:
    """Usage that was counted and is not known to be on the disk."""

    def __init__(self) -> None:
        """Nothing was counted."""
        self.server = secrets.token_hex(8)
        self._number = 0
        self._pending = UsageCounts()
        self._in_progress: Batch | None = None

    def add(self, row: UsageRow) -> None:
        """Count usage."""
        self._pending.add(row)

    def rows(self) -> list[UsageRow]:
        """Return everything."""
        return UsageCounts([*(self._in_progress.rows if self._in_progress else ()), *self._pending.rows()]).rows()

    @property
    def batch(self) -> Batch | None:
        """The batch to write, the same until it is written; None: there is nothing to write."""
        return self._in_progress

    def begin_batch(self) -> bool:
        """Put what was counted into a batch, unless there is one; return whether it did."""
        if self._in_progress is not None or not self._pending:
            return False
        self._number += 1
        self._in_progress = Batch(self.server, self._number, self._pending.rows())
        self._pending = UsageCounts()
        return True

    def written(self, number: int) -> None:
        """Forget the batch of this number: it is on the disk."""
        if self._in_progress is not None and self._in_progress.number == number:
            self._in_progress = None

    def state(self) -> UnwrittenState:
        """Return all of it, for the next supervisor."""
        return UnwrittenState(self.server, self._number, self._in_progress, self._pending.rows())

    def restore(self, state: UnwrittenState) -> None:
        """Go on from what an earlier supervisor had."""
        self.server, self._number, self._in_progress = state.server, state.number, state.in_progress
        self._pending = UsageCounts(state.pending)


class UnwrittenState(msgspec.Struct, frozen=True):
    """See :class:`UnwrittenUsage`."""

    server: str
    number: int
    in_progress: Batch | None
    pending: list[UsageRow]
