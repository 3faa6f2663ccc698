"""Keeps a job running as long as there are batches to be worked off. The batches are on the disk, and only the job reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from protocol.batches.batch_store import BatchStore
from protocol.config.settings import Settings
from protocol.messages.batches import BatchesChanged, BatchesDone, BatchesProgressed, BatchFigures, WorkOffBatches
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.sockets import SupervisorBus
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs

MODULE: Final = "workers.jobs.run_batches"
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Before the next job, after one that has died: longer with each death before anything was done."""

log = logs.get_logger()
_NOTHING: Final = BatchFigures({}, {}, {})


class BatchJobs:
    """The job, if there is one."""

    def __init__(
        self,
        settings: Settings,
        loop: Loop,
        jobs: Jobs,
        bus: SupervisorBus,
        calls: GatewayCalls,
        closing: Callable[[], bool],
    ) -> None:
        """None runs. ``closing``: whether the server ends."""
        self._pending = BatchStore(settings).pending
        self._loop, self._jobs, self._bus, self._calls, self._closing = loop, jobs, bus, calls, closing
        self._job = ""
        self._again = False
        self._pause = FIRST_PAUSE_S
        self._figures = _NOTHING
        self._ends: Counter[str] = Counter()
        self._lines: Counter[str] = Counter()

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            BatchesChanged: self._changed,
            BatchesProgressed: self._progressed,
            BatchesDone: self._done,
        }

    def start(self) -> None:
        """Start the job if a batch may not have ended."""
        if not self._job and not self._closing() and (self._again or self._pending.exists()):
            self._again = False
            self._job = self._jobs.start(MODULE, self._ended, WorkOffBatches())

    @property
    def figures(self) -> BatchFigures | None:
        """What this supervisor's jobs have done; None if there was none."""
        if not self._job and not self._ends and not self._lines:
            return None
        ended, lines = self._ends + Counter(self._figures.finished), self._lines + Counter(self._figures.lines)
        return BatchFigures(self._figures.open, ended, lines)

    def _changed(self, peer: str, call: BatchesChanged, _payload: bytes) -> None:
        if self._job:
            self._again = True  # it may just have looked for the last time
            if self._jobs.has_order(self._job):
                self._bus.send(self._job, WorkOffBatches())
        else:
            self._again = True
            self.start()
        self._calls.answer(peer, call.number, None)

    def _progressed(self, job: str, message: BatchesProgressed, _payload: bytes) -> None:
        if job == self._job:
            self._figures, self._pause = message.figures, FIRST_PAUSE_S

    def _done(self, job: str, message: BatchesDone, _payload: bytes) -> None:
        self._jobs.dismiss(job)
        if job == self._job:
            self._figures, self._pause = message.figures, 0.0

    def _ended(self, job: str, why: str) -> None:
        if job != self._job:
            return
        self._job = ""
        self._ends.update(self._figures.finished)
        self._lines.update(self._figures.lines)
        self._figures = _NOTHING
        if self._closing():
            return
        if self._pause:
            log.warning("batches were interrupted, they go on", reason=why, pause_s=self._pause)
        self._loop.call_later(self._pause, self.start)
        self._pause = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause))
