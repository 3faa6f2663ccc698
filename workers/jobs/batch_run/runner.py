"""Works off all batches: one thread decides and writes, others send lines and wait for their answers."""

from __future__ import annotations

import queue
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from protocol.batches.batch_states import ENDED
from protocol.batches.batch_store import BatchStore
from protocol.batches.file_store import FileStore
from protocol.config.settings import Settings
from protocol.messages.batches import BatchFigures
from protocol.runtime import logs
from workers.jobs.batch_run.answers import LineAnswer, judge
from workers.jobs.batch_run.batch import RunningBatch
from workers.jobs.batch_run.input_lines import BatchLine
from workers.jobs.batch_run.line_client import LineClient
from workers.jobs.batch_run.pace import Pace

MAX_THREADS: Final = 64
"""Lines of all models that are at the server at once."""
_STEP_S: Final = 0.25
"""After this time without an answer, it looks whether something may be sent now."""
_SCAN_S: Final = 5.0
_DISK_PAUSE_S: Final = 10.0
"""After an error of the disk, nothing is sent for this long."""
_WRITE_S: Final = 1.0
"""The counts of a batch are written at most this often."""

Answered = tuple[RunningBatch, BatchLine, LineAnswer]
log = logs.get_logger()


class BatchRunner:
    """The batches that have not ended."""

    def __init__(self, settings: Settings, client: LineClient) -> None:
        """Nothing is read yet."""
        self._store, self._files, self._client = BatchStore(settings), FileStore(settings), client
        self._longest_line = settings.body_limit + 64 * 1024
        self._running: dict[str, RunningBatch] = {}
        self._ended: set[str] = set()
        """Ids of batches that have ended, so that they are not read again."""
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._answers: queue.SimpleQueue[Answered | None] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(MAX_THREADS, "line")
        self._next_scan = self._next_write = self._disk_closed_until = 0.0
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
                    self._scan()
                    if not self._running and not self._stays_pending():
                        return
                self._step(now)
            except OSError as problem:
                log.error("batches wait for the disk", reason=str(problem), pause_s=_DISK_PAUSE_S)  # noqa: TRY400 - no bug
                self._disk_closed_until = now() + _DISK_PAUSE_S
            self._show()
            self._receive(now)

    def _stays_pending(self) -> bool:
        """Return whether a batch came meanwhile. If not, there is none that a later process would have to work off."""
        self._store.pending.unlink(missing_ok=True)
        self._scan()
        if self._running:
            self._store.pending.touch(mode=0o600)
        return bool(self._running)

    def _scan(self) -> None:
        for batch in self._store.owned_by(None):
            batch_id = batch.order.id
            if batch_id in self._running or batch_id in self._ended:
                continue
            if batch.progress.state in ENDED:
                self._store.tidy(batch.order)
                self._ended.add(batch_id)
                continue
            found = RunningBatch(self._store, self._files, batch, self._longest_line, time.time)
            if not found.look():  # cancelled before it was looked at
                log.debug("batch begins", batch=batch_id, endpoint=batch.order.endpoint)
            try:
                found.begin()
            except FileNotFoundError as problem:
                found.fail(problem)
                self._ended.add(batch_id)
                continue
            self._running[batch_id] = found

    def _step(self, now: Callable[[], float]) -> None:
        """Do what can be done with each batch, and send the lines that its model may have a slot for."""
        if now() < self._disk_closed_until:
            return
        for batch in list(self._running.values()):
            if batch.look():
                self._client.abort(batch.order.id)
            if not batch.sends and not batch.ended and not batch.at_server:
                batch.finish()
            if batch.ended:
                self._ends[batch.progress.state.value] += 1
                self._ended.add(batch.order.id)
                del self._running[batch.order.id]
        if now() >= self._next_write:
            self._next_write = now() + _WRITE_S
            for batch in self._running.values():
                batch.write()
        self._send(now)

    @property
    def _at_server(self) -> int:
        return sum(each.at_server for each in self._running.values())

    def _send(self, now: Callable[[], float]) -> None:
        """Send lines, one of each batch in turn, while their models' paces allow it."""
        sending = [batch for batch in self._running.values() if batch.sends]
        while sending:
            for batch in list(sending):
                line = batch.next_line() if self._at_server < MAX_THREADS else None
                if line is None:
                    sending.remove(batch)
                elif not self._paces[line.model].is_open(now()):
                    batch.send_first(line)
                    sending.remove(batch)
                else:
                    self._paces[line.model].sent()
                    batch.at_server += 1
                    self._pool.submit(self._ask, batch, line)

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
        pace, tries = self._paces[line.model], batch.tries.get(line.number, 0)
        verdict = judge(answer, tries)
        if verdict.done:
            try:
                batch.answered(line, answer)
            except OSError as problem:
                log.error("batches wait for the disk", reason=str(problem), pause_s=_DISK_PAUSE_S)  # noqa: TRY400 - no bug
                batch.send_first(line)
                pace.failed(now, _DISK_PAUSE_S)
                return
            pace.answered(now)
            self._lines["succeeded" if answer.status < 400 else "failed"] += 1
            return
        batch.send_first(line)
        if verdict.counts:
            batch.tries[line.number] = tries + 1
        if verdict.busy:
            pace.refused(now)
        else:
            pace.failed(now, verdict.pause)

    def _show(self) -> None:
        states = Counter(batch.progress.state.value for batch in self._running.values())
        self.figures = BatchFigures(dict(states), dict(self._ends), dict(self._lines))
