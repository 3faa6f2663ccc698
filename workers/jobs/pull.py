"""The job process that downloads one model: ``python -m workers.jobs.pull``.

The downloading thread writes the progress, which the loop reads and reports.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import traceback
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.calls import Progress
from protocol.messages.model_files import Pulled, PullFailed, StartPull
from protocol.runtime import logs
from workers.jobs.job import JobProcess
from workers.jobs.model_download.sources import DownloadOutcome, download_model
from workers.jobs.progress import DownloadProgress, ProgressSnapshot

REPORT_INTERVAL_S: Final = 0.1


class PullJob:
    """One download, from its order to its result."""

    def __init__(self, job: JobProcess) -> None:
        """Wait for the order."""
        self._job = job
        self._progress = DownloadProgress()
        self._reported = ProgressSnapshot()
        self._name = ""
        job.carry_out(StartPull, self._fetch, self._finish)
        job.loop.every(REPORT_INTERVAL_S, self._report)

    def _fetch(self, order: StartPull) -> DownloadOutcome:
        self._name = order.name
        try:
            return download_model(order, self._progress, self._job.settings.offline)
        except Exception:  # noqa: BLE001 - the waiting callers must be answered after any error
            failure = Failure(
                Code.INTERNAL, f"the download of {order.name} failed", model=order.name, detail=traceback.format_exc()
            )
            return DownloadOutcome(PullFailed(order.name, failure), [])

    def _report(self) -> None:
        reading = self._progress.reading
        if reading != self._reported:
            self._reported = reading
            self._job.report(Progress(0, self._name, *reading))

    def _finish(self, outcome: DownloadOutcome) -> None:
        result, errors = outcome
        log = logs.get_logger(model=result.name)
        for kind, problem in errors:
            log.warning("a download source failed", source=kind, reason=str(problem), detail=problem.detail)
        if isinstance(result, Pulled):
            self._report()
            log.debug("download complete", files=result.files)
        else:
            log.debug("download failed", reason=result.failure.message, detail=result.failure.detail)
        self._job.end(result)


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    PullJob(job)
    job.run()


if __name__ == "__main__":
    main()
