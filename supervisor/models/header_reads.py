"""Which headers of model files are known, which a job is reading, and which are not tried for a while. Pure.

A job reads one file after the other and reports each. If it reports nothing for too long, it hangs at its present file,
on a disk that does not answer. It is then given up, that file is not tried again for a while, and another job reads the
rest. A process that waits for a disk may even be unkillable, so the number of given-up jobs that still run is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from protocol.messages.model_details import FileFacts

MAX_PATHS: Final = 64
"""Files that one job reads; the next job reads the others."""
MAX_REMEMBERED: Final = 4096
MAX_STUCK: Final = 2
"""Given-up jobs that have not ended: at this number, no other job is started."""
PAUSE_S: Final = 60.0
"""How long a file at which a job hung is not tried again."""


class FileKey(NamedTuple):
    """One version of a model's files."""

    path: str
    size: int
    modified: int


class _Read:
    """The files of one job; those before ``position`` were read."""

    def __init__(self, files: list[FileKey]) -> None:
        self.files = files
        self.position = 0

    @property
    def unread(self) -> list[FileKey]:
        return self.files[self.position :]


class HeaderReads:
    """What is known about files, and the jobs that read more."""

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._facts: dict[FileKey, FileFacts] = {}
        self._paused: dict[FileKey, float] = {}
        """File → until when it is not tried."""
        self._reads: dict[str, _Read] = {}
        """Job → its files, including given-up jobs that have not ended."""
        self._current = ""
        """The job that is waited for."""

    def facts(self, file: FileKey) -> FileFacts:
        """Return what is known about a file's content."""
        return self._facts.get(file, FileFacts())

    def settled(self, file: FileKey, now: float) -> bool:
        """Return whether no call need wait for a file: it was read, or it is not being tried."""
        if file in self._facts or self._paused.get(file, 0.0) > now:
            return True
        return self._stuck >= MAX_STUCK and not (self._current and file in self._reads[self._current].unread)

    def next_files(self, wanted: Iterable[FileKey], now: float) -> list[FileKey]:
        """Of the files that calls wait for, return those that another job is to read now; none while a job reads."""
        if self._current or self._stuck >= MAX_STUCK:
            return []
        return [file for file in dict.fromkeys(wanted) if not self.settled(file, now)][:MAX_PATHS]

    @property
    def _stuck(self) -> int:
        return len(self._reads) - bool(self._current)

    def begin(self, job: str, files: list[FileKey]) -> None:
        """Note that a job was started for these files."""
        self._reads[job] = _Read(files)
        self._current = job

    def progress(self, job: str) -> int | None:
        """Return how many files the awaited job has read; None if this is not that job."""
        return self._reads[job].position if job and job == self._current else None

    def received(self, job: str, facts: Iterable[FileFacts]) -> bool:
        """Take what a job has read, even a given-up one; return whether it has read all its files."""
        read = self._reads.get(job)
        if read is None:
            return True
        if len(self._facts) + len(read.unread) > MAX_REMEMBERED:
            self._facts.clear()
        for file, each in zip(read.unread, facts, strict=False):
            self._facts[file] = each
            self._paused.pop(file, None)
            read.position += 1
        return not read.unread

    def give_up(self, job: str, now: float) -> FileKey | None:
        """Stop waiting for this job; return the file at which it hangs."""
        if job == self._current:
            self._current = ""
        unread = self._reads[job].unread
        self._paused = {file: until for file, until in self._paused.items() if until > now}
        if unread:
            self._paused[unread[0]] = now + PAUSE_S
        return unread[0] if unread else None

    def ended(self, job: str) -> list[FileKey]:
        """Note that a job's process has ended. If it was waited for, return the files that it leaves unread."""
        read = self._reads.pop(job, None)
        if read is None or job != self._current:
            return []
        self._current = ""
        return [file for file in read.unread if file not in self._facts]
