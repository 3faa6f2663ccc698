"""The job process that sends model files to other nodes: ``python -m workers.jobs.share_files``.

It sends as long as the supervisor or its successors want it to. The order of a new supervisor replaces the files, not the address.
On the head it also computes their sha256, one after the other in a thread, and reports each.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

import os
import threading
from functools import partial

from protocol.messages.model_transfer import SharedFile, ShareFiles, SharingFailed, SharingFiles
from protocol.runtime import logs
from workers.jobs.job import JobProcess
from workers.jobs.model_transfer.file_digests import ChangedError, FileDigests
from workers.jobs.model_transfer.file_server import FileServer


class ShareJob:
    """One server of files."""

    def __init__(self, job: JobProcess) -> None:
        """Wait for the files."""
        self._job = job
        self._server: FileServer | None = None
        self._digests = FileDigests(job.settings.cache_dir)
        self._digested: dict[str, str] = {}
        """Id → sha256, empty if it could not be computed, of the files that it is wanted of."""
        self._wanted: list[SharedFile] = []
        """The others of these."""
        self._computing = False
        self._reported: dict[str, str] | None = None
        job.on_message = self._received

    def _received(self, message: object) -> None:
        if not isinstance(message, ShareFiles):
            return
        if self._server is None:
            host = "the address of its node"
            try:
                host = self._job.context.bus.listening_host()
                self._server = FileServer(host, message.key)
            except (OSError, ValueError) as problem:
                errno = getattr(problem, "errno", None) or 0
                why = os.strerror(errno) if errno > 0 else str(problem)
                self._job.end(SharingFailed(f"no socket can listen at {host}: {why}"))
                return
            threading.Thread(target=self._server.serve_forever, name="http", daemon=True).start()
        self._server.files = {file.id: file for file in message.files}
        wanted = {each: self._server.files[each] for each in message.digested if each in self._server.files}
        self._digested = {each: digest for each, digest in self._digested.items() if each in wanted}
        self._wanted = [file for each, file in wanted.items() if each not in self._digested]
        self._report()
        self._compute_next()

    def _report(self) -> None:
        known = {each: digest for each, digest in self._digested.items() if digest}
        if self._server is not None and known != self._reported:
            self._reported = known
            self._job.report(SharingFiles(self._server.address, known))

    def _compute_next(self) -> None:
        if self._wanted and not self._computing:
            self._computing = True
            self._job.work(partial(self._digest, self._wanted[0]), self._computed)

    def _digest(self, file: SharedFile) -> tuple[SharedFile, str]:
        try:
            return file, self._digests.get(file)
        except ChangedError as problem:
            logs.get_logger().warning("the sha256 of a file cannot be computed", path=file.path, reason=str(problem))
            return file, ""

    def _computed(self, result: tuple[SharedFile, str]) -> None:
        self._computing = False
        file, digest = result
        if file in self._wanted:
            self._wanted.remove(file)
            self._digested[file.id] = digest
            self._report()
        self._compute_next()


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    ShareJob(job)
    job.run()


if __name__ == "__main__":
    main()
