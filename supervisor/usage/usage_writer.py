"""Brings usage to the disk once a second, and reads it: a thread does, so that a slow or full disk stops nothing.

What cannot be written stays in memory and in the journal, and is written when the disk takes it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from protocol.config.api_keys import model_allowed
from protocol.messages.usage import UsageFilter, UsageReport, UsageRow
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.times import day_of
from supervisor.persistence.disk_thread import DiskThread
from supervisor.usage.accounting import Accounting
from supervisor.usage.store import StoreError, UsageStore
from supervisor.usage.usage_counts import Batch, UsageCounts

INTERVAL_S: Final = 1.0
MOST_PAUSE_S: Final = 60.0
"""Longest time between two attempts to write."""
_CLOSE_S: Final = 2.0
"""How long the end of this process waits for the disk."""

Spent = list[tuple[str, int, int]]

log = logs.get_logger()


class UsageWriter:
    """Writes one batch after the other."""

    def __init__(
        self, loop: Loop, store: UsageStore, accounting: Accounting, clock: Callable[[], float] = time.time
    ) -> None:
        """Write nothing before :meth:`start`. ``clock``: Unix seconds."""
        self._loop, self._store, self._accounting, self._clock = loop, store, accounting, clock
        self._thread = DiskThread(loop, "usage-writer")
        self._writing = False
        self._pause = 0.0
        self._not_before = 0.0
        self.problem = ""
        """Why usage cannot be written now; empty: it can."""
        self._moved = ""

    def start(self) -> None:
        """Read what earlier servers have counted for the budgets, unless an earlier supervisor has; then write."""
        if not self._accounting.knows_stored:
            try:
                self._accounting.add_stored(self._store.spent(day_of(self._clock())))
            except StoreError as problem:
                self._failed(problem)
            self._report_moved()
        self._loop.every(INTERVAL_S, self.write)

    def write(self) -> None:
        """Begin to write what was counted, unless a write is in progress or has just failed."""
        if self._writing or self._loop.now() < self._not_before:
            return
        batch = self._accounting.next_batch()
        if batch is None:
            return
        self._writing = True
        today, reads = day_of(self._clock()), not self._accounting.knows_stored

        def work() -> Spent | None:
            spent = self._store.spent(today) if reads else None  # before the batch, which was counted already
            self._store.write(batch, today)
            return spent

        self._thread.run(work, partial(self._written, batch))

    def read(self, wanted: UsageFilter, done: Callable[[UsageReport | Exception], None]) -> None:
        """Call back with the usage on the disk and in memory, or with ``TooManyRowsError``."""
        self._thread.run(partial(self._store.read, wanted), partial(self._read, wanted, done))

    def close(self) -> None:
        """Write what was counted, if the disk takes it in time; leave the rest to the next supervisor."""
        self._thread.close(_CLOSE_S)
        if not self._thread.is_alive:
            self._write_last()
            self._store.close()
        self._accounting.checkpoint()

    def _write_last(self) -> None:
        batch = self._accounting.next_batch()
        if batch is None or self.problem:
            return
        try:
            self._store.write(batch, day_of(self._clock()))
        except StoreError as problem:
            self._failed(problem)
        else:
            self._accounting.batch_written(batch.number)

    def _written(self, batch: Batch, result: Spent | Exception | None) -> None:
        self._writing = False
        self._report_moved()
        if isinstance(result, StoreError):
            self._failed(result)
            return
        if isinstance(result, Exception):
            self._failed(StoreError(repr(result)))
            raise result
        if result is not None:
            self._accounting.add_stored(result)
        self._accounting.batch_written(batch.number)
        if self.problem:
            log.info("usage is written again")
        self.problem, self._pause = "", 0.0

    def _failed(self, problem: StoreError) -> None:
        if not self.problem:
            log.error("usage cannot be written: it stays in memory and is written later", reason=str(problem))
        self.problem = f"usage cannot be written, and stays in memory: {problem}"
        self._pause = min(MOST_PAUSE_S, max(INTERVAL_S, 2 * self._pause))
        self._not_before = self._loop.now() + self._pause

    def _report_moved(self) -> None:
        if self._store.moved != self._moved:
            self._moved = self._store.moved
            log.error("a file of usage was damaged", reason=self._moved)

    def _read(
        self,
        wanted: UsageFilter,
        done: Callable[[UsageReport | Exception], None],
        result: list[UsageRow] | Exception,
    ) -> None:
        self._report_moved()
        problem = self.problem
        if isinstance(result, StoreError):
            problem, result = f"usage cannot be read: {result}", []
        if isinstance(result, Exception):
            done(result)
            return
        unwritten = [row for row in self._accounting.unwritten if _matches(row, wanted)]
        if not wanted.by_day:
            unwritten = [msgspec.structs.replace(row, day="") for row in unwritten]
        done(UsageReport(UsageCounts([*result, *unwritten]).rows(), problem))


def _matches(row: UsageRow, wanted: UsageFilter) -> bool:
    in_time = wanted.first_day <= row.day <= (wanted.last_day or row.day)
    of_key = wanted.api_key is None or row.api_key == wanted.api_key
    return in_time and of_key and wanted.model in ("", row.model) and model_allowed(wanted.models, row.model)
