"""The job process that reads what model files say about themselves: ``python -m workers.jobs.describe``.

Each file is reported once it was read, so that a file that hangs the job does not affect the others.
"""

from __future__ import annotations

from protocol.runtime import memory

if __name__ == "__main__":
    memory.pause_gc()

from collections import deque
from functools import partial

from protocol.messages.model_details import Described, FileFacts, StartDescription
from workers.files.description import describe
from workers.jobs.job import JobProcess


def read_facts(path: str) -> FileFacts:
    """Read one file; an unreadable one has empty facts."""
    try:
        return describe(path)
    except Exception:  # noqa: BLE001 - files come from anywhere; a load says what is wrong with one
        return FileFacts()


class DescriptionJob:
    """Reads the files of one order, one after the other."""

    def __init__(self, job: JobProcess) -> None:
        """Wait for the order."""
        self._job = job
        self._paths: deque[str] = deque()
        job.on_message = self._on_message

    def _on_message(self, message: object) -> None:
        if isinstance(message, StartDescription):
            self._paths.extend(message.paths)
            self._read_next()

    def _read_next(self) -> None:
        self._job.work(partial(read_facts, self._paths.popleft()), self._read)

    def _read(self, facts: FileFacts) -> None:
        result = Described([facts])
        if self._paths:
            self._job.bus.send(result)
            self._read_next()
        else:
            self._job.end(result)


def main() -> None:
    """Run one job to its end."""
    job = JobProcess()
    DescriptionJob(job)
    job.run()


if __name__ == "__main__":
    main()
