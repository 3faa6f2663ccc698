"""The job process that works off batches, as long as there are any: ``python -m workers.jobs.run_batches``.

It sends each line to this server's own address, as a request of the batch's owner. So a line is checked, translated, limited and
counted as any request is. What it has done is on the disk: when it is killed, the next one goes on.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import traceback
from typing import Final

from protocol.batches import credential
from protocol.batches.batch_store import BatchStore
from protocol.file_lock import HeldError, lock
from protocol.messages.batches import BatchesDone, BatchesProgressed, BatchFigures, WorkOffBatches
from protocol.runtime import logs
from workers.jobs.batch_run.line_client import LineClient
from workers.jobs.batch_run.runner import BatchRunner
from workers.jobs.job import JobProcess

REPORT_INTERVAL_S: Final = 1.0


class BatchJob:
    """The work, from its order to the last batch's end."""

    def __init__(self, job: JobProcess) -> None:
        """Wait for the order."""
        self._job = job
        self._runner: BatchRunner | None = None
        self._reported = BatchFigures({}, {}, {})
        job.on_message = self._received
        job.loop.every(REPORT_INTERVAL_S, self._report)

    def _received(self, message: object) -> None:
        if not isinstance(message, WorkOffBatches):
            return
        if self._runner is not None:
            self._runner.wake()
            return
        settings, runtime = self._job.settings, self._job.context.runtime
        store = BatchStore(settings)
        store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # Held to the end of the process: two would write the same results.
            lock(store.folder / "lock")
        except HeldError as problem:
            logs.get_logger().warning("batches are worked off by another process", pid=problem.holder)
            self._job.loop.stop()
            return
        self._runner = BatchRunner(settings, LineClient(settings.base_url, credential.write(runtime)), runtime)
        self._job.work(self._run, self._finish)

    def _run(self) -> bool:
        try:
            assert self._runner is not None  # noqa: S101 - it has begun
            self._runner.run()
        except Exception:  # noqa: BLE001 - the supervisor starts another process after a pause
            logs.get_logger().error("batches are interrupted", detail=traceback.format_exc())
            return False
        return True

    def _report(self) -> None:
        if self._runner is not None and self._runner.figures != self._reported:
            self._reported = self._runner.figures
            self._job.report(BatchesProgressed(self._reported))

    def _finish(self, well: bool) -> None:
        if well and self._runner is not None:
            self._job.end(BatchesDone(self._runner.figures))
        else:
            self._job.loop.stop()


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    BatchJob(job)
    job.run()


if __name__ == "__main__":
    main()
