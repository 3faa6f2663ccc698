"""The job process that gets model files to its node, or only looks for them: ``python -m workers.jobs.receive_files``.

Other nodes are asked first. What they do not give is downloaded, as on the head, from where the model comes from.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import threading
import traceback
from functools import partial
from pathlib import Path
from typing import Final

from protocol.failures import Code, Failure
from protocol.messages.model_files import PullFailed, StartPull
from protocol.messages.model_transfer import (
    FilesFound,
    FilesPresent,
    FindFiles,
    StartFileTransfer,
    TransferFailed,
    TransferProgress,
    UseSenders,
)
from protocol.models.checkpoints import hub_cache
from protocol.runtime import logs
from workers.jobs.errors import SourceError
from workers.jobs.job import JobProcess
from workers.jobs.model_transfer.file_places import NodeFolders
from workers.jobs.model_transfer.file_receiver import FileReceiver
from workers.jobs.progress import DownloadProgress

REPORT_INTERVAL_S: Final = 0.1


class ReceiveJob:
    """One transfer, or one look at the disk."""

    def __init__(self, job: JobProcess) -> None:
        """Wait for the order."""
        self._job = job
        self._folders = NodeFolders(hub_cache(), Path(job.settings.cache_dir))
        self._model = ""
        self._receiver: FileReceiver | None = None
        self._news = threading.Event()
        self._reported = -1
        job.on_message = self._received
        job.loop.every(REPORT_INTERVAL_S, self._report)

    def _received(self, message: object) -> None:
        match message:
            case UseSenders(senders, digests) if self._receiver is not None:
                self._receiver.senders, self._receiver.digests = senders, digests
                self._news.set()
            case StartFileTransfer() if self._receiver is None:
                self._model = message.spec.name
                can_download = message.downloads and not self._job.settings.offline
                download = partial(self._download, message) if can_download else None
                self._receiver = FileReceiver(message, self._folders, self._wait, download)
                self._job.work(partial(self._received_all, self._receiver), self._finish)
            case FindFiles():
                self._job.work(partial(self._found, message), self._job.end)
            case _:
                pass

    def _wait(self, seconds: float) -> None:
        if self._news.wait(seconds):
            self._news.clear()

    def _download(self, order: StartFileTransfer, progress: DownloadProgress) -> None:
        # Few transfers need it.
        from workers.jobs.model_download.sources import download_model  # noqa: PLC0415

        pull = StartPull(order.spec.name, order.downloads, str(self._folders.cache))
        result, _ = download_model(pull, progress)
        if isinstance(result, PullFailed):
            full = result.failure.code is Code.INSUFFICIENT_STORAGE
            raise SourceError(result.failure.message, result.failure.detail, full=full)
        logs.get_logger(model=self._model).info("model downloaded on its node", files=result.files)

    def _found(self, order: FindFiles) -> FilesFound:
        return FilesFound(
            [found for model, files in order.models.items() if (found := self._folders.found(model, files)) is not None]
        )

    def _received_all(self, receiver: FileReceiver) -> FilesPresent | TransferFailed:
        message = f"the files of {self._model} could not be copied to this node"
        try:
            return receiver.run()
        except SourceError as problem:
            failure = Failure(problem.code, f"{message}: {problem}", model=self._model, detail=problem.detail)
        except Exception:  # noqa: BLE001 - the load that waits must be answered after any error
            failure = Failure(Code.INTERNAL, message, model=self._model, detail=traceback.format_exc())
        return TransferFailed(self._model, failure)

    def _report(self) -> None:
        if self._receiver is not None and self._receiver.done != self._reported:
            self._reported = self._receiver.done
            self._job.report(TransferProgress(self._model, self._reported, self._receiver.total))

    def _finish(self, result: FilesPresent | TransferFailed) -> None:
        self._report()
        log = logs.get_logger(model=self._model)
        if isinstance(result, TransferFailed):
            log.warning("files not copied", reason=result.failure.message, detail=result.failure.detail)
        else:
            if result.refused:
                log.warning("nodes have sent other bytes than those of the head", nodes=result.refused)
            log.info("files copied", files=len(result.paths))
        self._job.end(result)


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    ReceiveJob(job)
    job.run()


if __name__ == "__main__":
    main()
