"""One batch from its order to its end, as it is on the disk: which line is next, which have a result, what follows when all have.

Every step can be repeated: a process that is killed between any two is followed by one that reads the same files and goes on.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import structs

from protocol.batches.batch_states import ENDED, TRANSITIONS, BatchEvent, BatchState
from protocol.batches.batch_store import (
    ERRORS,
    INPUT,
    MAX_LINES,
    OUTPUT,
    BatchProblem,
    BatchStore,
    StoredBatch,
    link_or_copy,
)
from protocol.batches.file_store import FileStore
from protocol.runtime import logs
from protocol.state_table import next_state
from workers.jobs.batch_run import results
from workers.jobs.batch_run.answers import LineAnswer
from workers.jobs.batch_run.input_lines import MAX_NUMBER, BatchLine, LineError, check_input, parse_line, read_lines
from workers.jobs.batch_run.results import ResultFile

OUTPUT_PURPOSE: Final = "batch_output"
_TIMES: Final = {
    BatchState.IN_PROGRESS: "in_progress_at",
    BatchState.FINALIZING: "finalizing_at",
    BatchState.CANCELLING: "cancelling_at",
}


class RunningBatch:
    """A batch that has not ended."""

    def __init__(
        self, store: BatchStore, files: FileStore, batch: StoredBatch, longest_line: int, now: Callable[[], float]
    ) -> None:
        """Nothing is read or written yet. ``longest_line``: in bytes. ``now``: Unix seconds."""
        self._store, self._files, self._longest_line, self._now = store, files, longest_line, now
        self.order, self.progress = batch.order, batch.progress
        self._output: ResultFile | None = None
        self._errors: ResultFile | None = None
        self._done: set[str] = set()
        self._lines: Iterator[tuple[int, bytes]] = iter(())
        self._again: deque[BatchLine] = deque()
        """Lines that were sent and are to be sent again."""
        self.tries: dict[int, int] = {}
        """Line → how often it has failed so that it counts."""
        self.at_server = 0
        """Lines that were sent and have no answer yet."""
        self.sent_at = 0.0
        """When a line was sent while none was at the server."""
        self.waiting = ""
        """Why none of its lines runs; empty while one does."""
        self._written = batch.progress

    @property
    def ended(self) -> bool:
        """Whether nothing is left to be done."""
        return self.progress.state in ENDED

    @property
    def sends(self) -> bool:
        """Whether its lines may be sent."""
        return self.progress.state is BatchState.IN_PROGRESS

    def _move(self, event: BatchEvent, **changes: object) -> None:
        state = next_state(TRANSITIONS, self.progress.state, event)
        self.waiting = ""
        at = {_TIMES[state]: int(self._now())} if state in _TIMES else {}
        if state in ENDED:
            at = {"ended_at": int(self._now())}
        moved = structs.replace(self.progress, state=state, **at, **changes)
        self._store.write_progress(self.order.id, moved)  # first: if the disk is full, it is where it was
        self.progress = self._written = moved
        logs.get_logger().info("batch", batch=self.order.id, state=state.value, **self._counts())

    def _counts(self) -> dict[str, int]:
        progress = self.progress
        return {"total": progress.total, "completed": progress.completed, "failed": progress.failed}

    def write(self) -> None:
        """Write where it is, if that has changed."""
        if self.progress != self._written:
            self._store.write_progress(self.order.id, self.progress)
            self._written = self.progress

    def begin(self) -> None:
        """Check its lines if that was not done, or go on where another process has stopped. Raises OSError."""
        if self.progress.state is BatchState.VALIDATING:
            path = self._store.path(self.order.id, INPUT)
            total, problems = check_input(path, self.order.endpoint, self._longest_line)
            event = BatchEvent.INVALID if problems else BatchEvent.VALID
            self._move(event, problems=problems, total=total)
        if self.ended:
            return
        self._output = ResultFile(self._store.path(self.order.id, OUTPUT))
        self._errors = ResultFile(self._store.path(self.order.id, ERRORS))
        self._store.path(self.order.id, INPUT).stat()
        completed, failed = self._output.ids(), self._errors.ids()
        self._done = completed | failed
        self.progress = structs.replace(self.progress, completed=len(completed), failed=len(failed))
        self._lines = read_lines(self._store.path(self.order.id, INPUT), self._longest_line)

    def fail(self, problem: OSError) -> None:
        """End it because a file of it is gone: what has a result keeps it. Raises OSError."""
        why = BatchProblem("unreadable", "the requests of the batch cannot be read any more")
        files = {}
        for name, field in ((OUTPUT, "output_file_id"), (ERRORS, "error_file_id")):
            path = self._store.path(self.order.id, name)
            if self.order.input_file_id and path.exists() and (size := path.stat().st_size):
                files[field] = getattr(self.progress, field) or new_file_id()
                self._keep(name, files[field], size)
        failed = self.progress.total - self.progress.completed
        self._move(BatchEvent.LOST, problems=[why], failed=failed, **files)
        logs.get_logger().error("batch unreadable", batch=self.order.id, reason=str(problem))

    def close(self) -> None:
        """Give its open files back; it is not used any more."""
        for file in (self._output, self._errors):
            if file is not None:
                file.discard()

    def look(self) -> bool:
        """Note that it was cancelled, that its time is over, or that all is done; return whether lines at the server are to end."""
        if not self.sends and self.progress.state is not BatchState.VALIDATING:
            return False
        if self._store.cancelled_at(self.order.id):
            self._move(BatchEvent.CANCEL)
            return True
        if self.sends and self._now() >= self.order.expires_at:
            self._move(BatchEvent.STOP)
            return True
        if self.sends and self.progress.completed + self.progress.failed >= self.progress.total:
            self._move(BatchEvent.STOP)
        return False

    def next_line(self) -> BatchLine | None:
        """Return the next line that has no result; None if all were returned. :meth:`send_first` puts it back."""
        if self._again:
            return self._again.popleft()
        for number, line in self._lines:
            if not self.progress.total and (number > MAX_NUMBER or len(self._done) >= MAX_LINES):
                break  # it was cancelled before it was checked, so it may be of any length
            try:
                found = parse_line(number, line, self.order.endpoint, self._longest_line)
            except LineError:
                continue  # they were checked
            if found.custom_id not in self._done:
                return found
        return None

    def send_first(self, line: BatchLine) -> None:
        """Put a line back that is the next one."""
        self._again.appendleft(line)

    def sent(self, now: float) -> None:
        """Note that a line was sent; ``now``: monotonic seconds."""
        self.sent_at = self.sent_at if self.at_server else now
        self.at_server += 1

    def blocked(self, why: str) -> None:
        """Note why its next line cannot be sent now."""
        if not self.at_server:
            self.waiting = why

    def answered(self, line: BatchLine, answer: LineAnswer) -> None:
        """Write the result of a line; raises OSError, and then it has none."""
        well = answer.status < 400
        file = self._output if well else self._errors
        assert file is not None  # noqa: S101 - it has begun
        file.append(results.result_of(line, answer))
        self._done.add(line.custom_id)
        self.tries.pop(line.number, None)
        field = "completed" if well else "failed"
        self.progress = structs.replace(self.progress, **{field: getattr(self.progress, field) + 1})

    def sync(self) -> None:
        """Wait until its results are on the disk; raises OSError."""
        for file in (self._output, self._errors):
            if file is not None:
                file.sync()

    def finish(self) -> None:
        """Write what became of the lines that were not sent, make the results files, and end. Raises OSError, and may be repeated."""
        output, errors = self._output, self._errors
        assert output is not None  # noqa: S101 - it has begun
        assert errors is not None  # noqa: S101 - it has begun
        cancelled = self.progress.state is BatchState.CANCELLING
        while (line := self.next_line()) is not None:
            try:
                errors.append(results.unsent(line, results.CANCELLED if cancelled else results.EXPIRED))
            except OSError:
                self.send_first(line)
                raise
            self._done.add(line.custom_id)
        sizes = output.close(), errors.close()
        left = self._unsent()
        progress = structs.replace(self.progress, failed=self.progress.total - self.progress.completed)
        if not self.progress.total:  # cancelled before its lines were checked
            progress = structs.replace(progress, total=len(self._done), failed=len(self._done))
        self.progress = structs.replace(progress, cancelled=left if cancelled else 0, expired=0 if cancelled else left)
        if self.order.input_file_id:
            # The names first: a process that goes on here uses the same.
            names = {
                "output_file_id": self.progress.output_file_id or (new_file_id() if sizes[0] else ""),
                "error_file_id": self.progress.error_file_id or (new_file_id() if sizes[1] else ""),
            }
            self.progress = structs.replace(self.progress, **names)
            self.write()
            self._keep(OUTPUT, self.progress.output_file_id, sizes[0])
            self._keep(ERRORS, self.progress.error_file_id, sizes[1])
        self._move(BatchEvent.KEPT_LATE if left and not cancelled else BatchEvent.KEPT)
        self._store.tidy(self.order)

    def _unsent(self) -> int:
        """Return how many lines were not sent."""
        marks = tuple(f'"code":"{code}"'.encode() for code in (results.CANCELLED, results.EXPIRED))
        with self._store.path(self.order.id, ERRORS).open("rb") as file:
            return sum(b'"response":null' in line and any(mark in line for mark in marks) for line in file)

    def _keep(self, name: str, file_id: str, size: int) -> None:
        """Make a file of results one of its owner's files. Its lines stay here as well, as the same file."""
        if not file_id:
            return
        target = self._files.data(file_id)
        self._files.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not target.exists():
            link_or_copy(self._store.path(self.order.id, name), target)
        filename = f"{self.order.id}_{name}"
        self._files.record(file_id, self.order.owner, filename, OUTPUT_PURPOSE, size, self.order.output_ttl)


def new_file_id() -> str:
    """Return an id of a file that does not exist yet."""
    return f"file-{secrets.token_hex(16)}"
