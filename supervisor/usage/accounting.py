"""Counts each report of an end once: in the usage, in the metrics and against the limits of its API key.

Everything is in a journal that outlives this supervisor: a checkpoint once a second, and before the metrics are shown, and each
report since. The next supervisor goes on from there, so that no counter falls.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import structs

from protocol.ids import RequestKey
from protocol.messages.metrics import RequestsObserved
from protocol.messages.usage import UsageRow
from protocol.messages.work import AnswerLost, AttemptEnded
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.times import day_of
from supervisor.limits.rate_limiter import KeyLevels, RateLimiter
from supervisor.limits.token_budgets import TokenBudgets
from supervisor.metrics.server_metrics import ServerMetrics, known_code
from supervisor.overview.ended_requests import EndedRequests
from supervisor.runtime.server_counters import ServerCounters
from supervisor.usage.end_serials import EndSerials
from supervisor.usage.journal import (
    BatchBegun,
    BatchWritten,
    Checkpoint,
    CountsJournal,
    EndCounted,
    EndTakenBack,
    LossCounted,
    Record,
    RequestsCounted,
)
from supervisor.usage.usage_counts import Batch, UnwrittenUsage, taking_back, usage_of

CHECKPOINT_INTERVAL_S: Final = 1.0
MAX_LATEST: Final = 256
"""Ends that can be taken back: more than workers report in the milliseconds before one dies and its requests are tried again."""

log = logs.get_logger()


class Accounting:
    """What was counted, and how it is handed down."""

    def __init__(
        self,
        loop: Loop,
        metrics: ServerMetrics,
        counters: ServerCounters,
        limits: RateLimiter,
        budgets: TokenBudgets,
        registered: Callable[[str], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``registered`` returns the registered name of a model that a client named, empty if there is none.

        ``clock``: Unix seconds; they decide what the day is.
        """
        self._loop, self._metrics, self._limits, self._budgets = loop, metrics, limits, budgets
        self._registered, self._clock = registered, clock
        self._unwritten = UnwrittenUsage()
        self._serials = EndSerials()
        self._latest: deque[EndCounted] = deque(maxlen=MAX_LATEST)
        """The ends that were counted last."""
        self._journal: CountsJournal | None = None
        self.ended = EndedRequests()
        self.knows_stored = False
        """Whether the budgets count what earlier servers have written."""
        self._counters = counters

    # What was reported

    def attempt_ended(self, worker: str, end: AttemptEnded) -> None:
        """Count the end of an attempt, unless it was counted before or costs nothing."""
        if end.serial and self._serials.is_new(worker, end.serial):
            record = EndCounted(worker, end, self._clock())
            self._write(record)
            row = self._count_end(record)
            if end.api_key:
                self._use_tokens(end.api_key, row.tokens)

    def take_back(self, key: RequestKey) -> None:
        """Take back what an attempt counted whose answer never got to the gateway: its request is tried again, or fails.

        Only a worker that dies in the middle of an answer's end leaves that. Counters of metrics only rise, and keep it.
        """
        counted = self._forget(key)
        if counted is not None:
            record = EndTakenBack(counted.end, counted.at)
            self._write(record)
            row = self._take_back(record)
            self._use_tokens(row.api_key, row.tokens)

    def answer_lost(self, gateway: str, answer: AnswerLost) -> None:
        """Count what a client of a gateway got of a stream whose worker is gone, instead of the end that it may have reported."""
        self.take_back(RequestKey(gateway, answer.number, answer.attempt))
        if not answer.tokens:
            return
        record = LossCounted(answer, self._clock())
        self._write(record)
        self._count_loss(record)
        if answer.caller is not None:
            self._use_tokens(answer.caller.key, answer.tokens)

    def requests_observed(self, gateway: str, observed: RequestsObserved) -> None:
        """Count what a gateway has observed, unless it was counted before."""
        if not observed.serial or self._serials.is_new(gateway, observed.serial):
            record = RequestsCounted(gateway, observed, self._clock())
            self._write(record)
            self._count_requests(record)

    def limits_changed(self, key: str) -> None:
        """Note that a key has used some of its limits."""
        self._write(self._limits.levels(key))

    def _use_tokens(self, key: str, tokens: int) -> None:
        if tokens and self._limits.use_tokens(key, tokens, self._loop.now()):
            self.limits_changed(key)

    # How it is counted, now or when it is read from the journal

    def _count_end(self, record: EndCounted) -> UsageRow:
        end, row = record.end, usage_of(record.end, record.at)
        self._latest.append(record)
        if end.outcome is None:
            self._metrics.generation_stopped(end.model, row.output_tokens, row.prompt_tokens)
        else:
            self._metrics.generation_ended(end.model, end.outcome)
        self._count_tokens(row, record.at)
        return row

    def _forget(self, key: RequestKey) -> EndCounted | None:
        """Return the end of an attempt that was counted lately, which can be taken back only once."""
        found = next((each for each in self._latest if each.end.key == key), None)
        if found is not None:
            self._latest.remove(found)
        return found

    def _take_back(self, record: EndTakenBack) -> UsageRow:
        row = taking_back(usage_of(record.end, record.at))
        self._unwritten.add(row)
        self._budgets.spend(row.api_key, row.tokens, record.at)
        return row

    def _count_loss(self, record: LossCounted) -> None:
        answer = record.answer
        self._metrics.generation_stopped(answer.model, answer.tokens)
        key = answer.caller.key if answer.caller is not None else ""
        self._count_tokens(UsageRow(day_of(record.at), key, answer.model, output_tokens=answer.tokens), record.at)

    def _count_tokens(self, row: UsageRow, at: float) -> None:
        self._unwritten.add(row)
        if row.api_key:
            self._metrics.tokens_used(row.api_key, row.prompt_tokens, row.output_tokens)
            self._budgets.spend(row.api_key, row.tokens, at)

    def _count_requests(self, record: RequestsCounted) -> None:
        self._metrics.requests_observed(record.observed.series)
        named = ((each, self._registered(each.model) if each.model else "") for each in record.observed.ended)
        self.ended.add(structs.replace(each, model=name) if name else each for each, name in named)
        for each in record.observed.failures:
            model, requests = self._registered(each.model) if each.model else "", each.requests - each.answered
            failures = {known_code(each.code): each.requests}
            self._unwritten.add(UsageRow(day_of(record.at), each.api_key, model, requests, failures=failures))

    # The disk

    def add_stored(self, spent: Iterable[tuple[str, int, int]]) -> None:
        """Let the budgets count what earlier servers have written: each key, its tokens of today and of this month."""
        self._budgets.add_stored(spent, self._clock())
        self.knows_stored = True
        self.checkpoint()

    @property
    def unwritten(self) -> list[UsageRow]:
        """The usage that is not known to be on the disk."""
        return self._unwritten.rows()

    def next_batch(self) -> Batch | None:
        """Return what is to be written now; the same until it is written."""
        if self._unwritten.begin_batch():
            self._write(BatchBegun())
        return self._unwritten.batch

    def batch_written(self, number: int) -> None:
        """Note that a batch is on the disk."""
        self._write(BatchWritten(number))
        self._unwritten.written(number)

    # The journal

    def use_journal(self, descriptor: int, hold: Callable[[int], None]) -> None:
        """Go on from the journal of an earlier supervisor, and continue it.

        ``descriptor``: -1 for a new one. ``hold`` gets the descriptor of each new one.
        """
        journal = CountsJournal(descriptor, hold)
        for record in journal.since_checkpoint():
            try:
                self._repeat(record)
            except Exception:
                # A supervisor that cannot start is worse than one that counts from less.
                log.exception("a record of what was counted cannot be used", record=type(record).__name__)
        self._journal = journal
        if descriptor < 0:
            self.checkpoint()  # the next supervisor must write batches under the same name
        self._loop.every(CHECKPOINT_INTERVAL_S, self.checkpoint)

    def checkpoint(self) -> None:
        """Write down everything, if anything has changed."""
        if self._journal is None:
            return
        checkpoint = Checkpoint(
            unwritten=self._unwritten.state(),
            serials=self._serials.state(),
            levels=self._limits.state(),
            spent=self._budgets.state(),
            metrics=self._metrics.state(),
            totals=self._counters.totals(),
            knows_stored=self.knows_stored,
            ended=self.ended.state(),
        )
        self._journal.write_checkpoint(checkpoint)

    def _repeat(self, record: Record) -> None:
        match record:
            case EndCounted(worker, end):
                self._serials.is_new(worker, end.serial)
                self._count_end(record)
            case EndTakenBack():
                self._forget(record.end.key)
                self._take_back(record)
            case LossCounted():
                self._count_loss(record)
            case RequestsCounted(gateway, observed):
                self._serials.is_new(gateway, observed.serial)
                self._count_requests(record)
            case BatchBegun():
                self._unwritten.begin_batch()
            case BatchWritten(number):
                self._unwritten.written(number)
            case KeyLevels():
                self._limits.restore(record)
            case Checkpoint():
                self._unwritten.restore(record.unwritten)
                self._serials.restore(record.serials)
                self._budgets.restore(record.spent)
                self._metrics.restore(record.metrics)
                self.ended.restore(record.ended)
                self._counters.former, self.knows_stored = record.totals, record.knows_stored
                for levels in record.levels:
                    self._limits.restore(levels)

    def _write(self, record: Record) -> None:
        if self._journal is not None:
            self._journal.write(record)
