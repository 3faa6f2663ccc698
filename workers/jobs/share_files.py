"""The job process that sends model files to other nodes: ``python -m workers.jobs.share_files``.

It sends as long as the supervisor or its successors want it to. The order of a new supervisor replaces the files, not the address.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import os
import threading

from protocol.messages.model_transfer import ShareFiles, SharingFailed, SharingFiles
from workers.jobs.job import JobProcess
from workers.jobs.model_transfer.file_digests import FileDigests
from workers.jobs.model_transfer.file_server import FileServer


class ShareJob:
    """One server of files."""

    def __init__(self, job: JobProcess) -> None:
        """Wait for the files."""
        self._job = job
        self._server: FileServer | None = None
        job.on_message = self._received

    def _received(self, message: object) -> None:
        if not isinstance(message, ShareFiles):
            return
        if self._server is None:
            host = "the address of its node"
            try:
                host = self._job.context.bus.listening_host()
                self._server = FileServer(host, message.key, FileDigests(self._job.settings.cache_dir))
            except (OSError, ValueError) as problem:
                errno = getattr(problem, "errno", None) or 0
                why = os.strerror(errno) if errno > 0 else str(problem)
                self._job.end(SharingFailed(f"no socket can listen at {host}: {why}"))
                return
            threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()
            self._job.report(SharingFiles(self._server.address))
        self._server.files = {file.id: file for file in message.files}


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    ShareJob(job)
    job.run()


if __name__ == "__main__":
    main()
