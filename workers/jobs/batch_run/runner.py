"""Works off all batches: one thread decides and writes, others send lines and wait for their answers."""

from __future__ import annotations

import queue
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from protocol.batches import batch_waits
from protocol.batches.batch_store import BatchStore
from protocol.batches.file_store import FileStore
from protocol.config.settings import Settings
from protocol.failures import printable
from protocol.messages.batches import BatchFigures
from protocol.runtime import logs
from workers.jobs.batch_run.answers import LineAnswer, judge
from workers.jobs.batch_run.batch import RunningBatch
from workers.jobs.batch_run.input_lines import BatchLine
from workers.jobs.batch_run.line_client import LineClient
from workers.jobs.batch_run.pace import Pace
from workers.jobs.batch_run.waits import RUNS_S, WaitLog

MAX_THREADS: Final = 64
"""Lines of all models that are at the server at once."""
_STEP_S: Final = 0.25
"""After this time without an answer, it looks whether something may be sent now."""
_SCAN_S: Final = 5.0
_DISK_PAUSE_S: Final = 10.0
"""After an error of the disk, a batch is left alone for this long."""
_LOST_AFTER_S: Final = 86_400.0
"""A batch whose files cannot be read for this long after its window fails."""
_WRITE_S: Final = 1.0
"""The counts of a batch are written at most this often."""


class _SetAside(NamedTuple):
    until: float
    """When the batch begins again."""
    reason: str


Answered = tuple[RunningBatch, BatchLine, LineAnswer]
log = logs.get_logger()


class BatchRunner:
    """The batches that have not ended."""

    def __init__(self, settings: Settings, client: LineClient, runtime: Path) -> None:
        """Nothing is read yet. ``runtime``: where gateways read why batches wait. Raises OSError."""
        self._store, self._files, self._client = BatchStore(settings), FileStore(settings), client
        self._longest_line = settings.body_limit + 64 * 1024
        self._running: dict[str, RunningBatch] = {}
        self._aside: dict[str, _SetAside] = {}
        """Ids of batches whose files could not be read or written."""
        self._ended: set[str] = set()
        """Ids of batches that have ended, so that they are not read again."""
        self._paces: defaultdict[tuple[str, str], Pace] = defaultdict(Pace)
        """By owner and model: an owner whose limit is reached holds no other, and none is told about the limits of another."""
        self._answers: queue.SimpleQueue[Answered | None] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(MAX_THREADS, "line")
        self._next_scan = self._next_write = self._next_note = 0.0
        self._runtime = runtime
        self._waits: dict[str, str] = {}
        """Batch → why it waits, as gateways know it."""
        self._wait_log = WaitLog()
        batch_waits.write(runtime, {})
        self._lines: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self.figures = BatchFigures({}, {}, {})
        """What is shown of it; other threads may read it."""

    def wake(self) -> None:
        """Look for new and cancelled batches now. Other threads may call this."""
        self._next_scan = 0.0
        self._answers.put(None)

    def run(self, now: Callable[[], float] = time.monotonic) -> None:
        """Work until no batch is left."""
        self._store.sweep()
        while True:
            try:
                if now() >= self._next_scan:
                    self._next_scan = now() + _SCAN_S
                    self._scan(now())
                    if not self._has_batches and not self._stays_pending(now()):
                        batch_waits.write(self._runtime, {})
                        return
                self._note_waits(now())
            except OSError as problem:
                log.error("batches wait for the disk", reason=str(problem), pause_s=_DISK_PAUSE_S)  # noqa: TRY400 - no bug
                self._next_scan = self._next_note = now() + _DISK_PAUSE_S
            self._step(now)
            self._send(now)
            self._show()
            self._receive(now)

    @property
    def _has_batches(self) -> bool:
        return bool(self._running or self._aside)

    def _stays_pending(self, now: float) -> bool:
        """Return whether a batch came meanwhile. If not, there is none that a later process would have to work off."""
        self._store.pending.unlink(missing_ok=True)
        self._scan(now)
        if self._has_batches:
            self._store.pending.touch(mode=0o600)
        return self._has_batches

    def _scan(self, now: float) -> None:
        found = {batch.order.id: batch for batch in self._store.owned_by(None)}
        known = found.keys() | self._running.keys()
        self._aside = {batch_id: each for batch_id, each in self._aside.items() if batch_id in known}
        for batch_id, batch in found.items():
            if batch_id in self._running or batch_id in self._ended:
                continue
            if batch_id in self._aside and now < self._aside[batch_id].until:
                continue
            running = RunningBatch(self._store, self._files, batch, self._longest_line, time.time)
            try:
                self._begin(running)
            except OSError as problem:
                running.close()
                self._set_aside(running, problem, now)
                continue
            self._aside.pop(batch_id, None)

    def _begin(self, batch: RunningBatch) -> None:
        """Work off a batch from now on, unless it has ended. Raises OSError."""
        batch_id = batch.order.id
        if batch.ended:
            self._store.tidy(batch.order)
            self._ended.add(batch_id)
            return
        if not batch.look():  # cancelled before it was looked at
            log.debug("batch begins", batch=batch_id, endpoint=batch.order.endpoint)
        batch.begin()
        self._running[batch_id] = batch

    def _set_aside(self, batch: RunningBatch, problem: OSError, now: float) -> None:
        """Let the others go on: this one begins again after a pause, from what is on the disk. It fails if its files are gone."""
        batch_id = batch.order.id
        try:
            late = time.time() >= batch.order.expires_at + _LOST_AFTER_S
            if not batch.ended and (late or isinstance(problem, FileNotFoundError)):
                batch.fail(problem)
                self._client.abort(batch_id)
                return  # the next step or scan finds that it has ended
        except OSError as another:
            problem = another
        reason = f"the disk does not give or take its files: {problem.strerror or problem}"
        if batch_id not in self._aside:
            log.error("batches wait for the disk", batch=batch_id, reason=str(problem), pause_s=_DISK_PAUSE_S)
        self._aside[batch_id] = _SetAside(now + _DISK_PAUSE_S, reason)

    def _step(self, now: Callable[[], float]) -> None:
        """Do what can be done with each batch besides sending its lines."""
        write = now() >= self._next_write
        if write:
            self._next_write = now() + _WRITE_S
        for batch in list(self._running.values()):
            batch_id = batch.order.id
            try:
                if batch_id not in self._aside:
                    self._advance(batch, write=write)
            except OSError as problem:
                self._set_aside(batch, problem, now())
            if batch.at_server:
                continue
            if batch.ended:
                self._ends[batch.progress.state.value] += 1
                self._ended.add(batch_id)
                self._aside.pop(batch_id, None)
            if batch.ended or batch_id in self._aside:
                batch.close()
                del self._running[batch_id]

    def _advance(self, batch: RunningBatch, *, write: bool) -> None:
        if batch.look():
            self._client.abort(batch.order.id)
        if not batch.sends and not batch.ended and not batch.at_server:
            batch.finish()
        if write and not batch.ended:
            batch.write()

    def _note_waits(self, now: float) -> None:
        """Tell gateways and the log why batches wait; raises OSError."""
        if now < self._next_note:
            return
        self._next_note = now + _WRITE_S
        reasons = {batch_id: batch.waiting for batch_id, batch in self._running.items() if batch.waiting}
        reasons.update({batch_id: each.reason for batch_id, each in self._aside.items()})
        for batch_id in self._wait_log.news(reasons, now):
            log.info("batch waits", batch=batch_id, reason=reasons[batch_id])
        if reasons != self._waits:
            batch_waits.write(self._runtime, reasons)
            self._waits = reasons

    @property
    def _at_server(self) -> int:
        return sum(each.at_server for each in self._running.values())

    def _send(self, now: Callable[[], float]) -> None:
        """Send lines, one of each batch in turn, while their models' paces allow it."""
        for batch in self._running.values():
            if batch.at_server and now() - batch.sent_at >= RUNS_S:
                batch.waiting = ""
        sending = [batch for batch in self._running.values() if batch.sends and batch.order.id not in self._aside]
        while sending:
            for batch in list(sending):
                try:
                    sent = self._send_line(batch, now())
                except OSError as problem:
                    self._set_aside(batch, problem, now())
                    sent = False
                if not sent:
                    sending.remove(batch)

    def _send_line(self, batch: RunningBatch, now: float) -> bool:
        """Send the next line of a batch; return whether there was one that may be sent. Raises OSError."""
        if self._at_server >= MAX_THREADS:
            batch.blocked(f"{MAX_THREADS} requests of batches run already")
            return False
        line = batch.next_line()
        if line is None:
            return False
        pace = self._paces[batch.order.owner, line.model]
        if not pace.is_open(now):
            batch.send_first(line)
            batch.blocked(pace.why or f"requests of other batches run on model {printable(line.model)}")
            return False
        pace.sent()
        batch.sent(now)
        self._pool.submit(self._ask, batch, line)
        return True

    def _ask(self, batch: RunningBatch, line: BatchLine) -> None:
        answer = LineAnswer(0)
        try:
            answer = self._client.send(batch.order.id, batch.order.owner, batch.order.endpoint, line)
        finally:
            self._answers.put((batch, line, answer))

    def _receive(self, now: Callable[[], float]) -> None:
        """Wait for answers, and take all that have come; their results are on the disk afterwards."""
        written = []
        try:
            found = self._answers.get(timeout=_STEP_S)
            while True:
                if found is not None:
                    written.append(found[0])
                    self._take(*found, now())
                found = self._answers.get_nowait()
        except queue.Empty:
            pass
        for batch in written:
            try:
                batch.sync()
            except OSError as problem:
                log.error("results are not on the disk yet", batch=batch.order.id, reason=str(problem))  # noqa: TRY400 - no bug

    def _take(self, batch: RunningBatch, line: BatchLine, answer: LineAnswer, now: float) -> None:
        batch.at_server -= 1
        pace, tries = self._paces[batch.order.owner, line.model], batch.tries.get(line.number, 0)
        if batch.ended:
            pace.failed(now, 0.0)
            return
        verdict = judge(answer, tries)
        if verdict.done:
            try:
                batch.answered(line, answer)
            except OSError as problem:
                log.error("batches wait for the disk", reason=str(problem), pause_s=_DISK_PAUSE_S)  # noqa: TRY400 - no bug
                batch.send_first(line)
                pace.failed(now, _DISK_PAUSE_S, f"the disk does not take its results: {problem.strerror}")
                return
            batch.waiting = ""
            pace.answered(now)
            self._lines["succeeded" if answer.status < 400 else "failed"] += 1
            return
        batch.send_first(line)
        if verdict.counts:
            batch.tries[line.number] = tries + 1
        if verdict.busy:
            pace.refused(now, answer.why)
        else:
            pace.failed(now, verdict.pause, answer.why)

    def _show(self) -> None:
        states = Counter(batch.progress.state.value for batch in self._running.values())
        self.figures = BatchFigures(dict(states), dict(self._ends), dict(self._lines))
