"""The headers of model files: a job process reads them when a call needs them, because a disk may be slow.

What was read is remembered until the file changes. A job reads one file after the other and reports each. If it reports
nothing for too long, it hangs at its present file, on a disk that does not answer. It is then given up, that file is not
tried again for a while, and another job reads the rest. A process that waits for a disk may even be unkillable, so the
number of given-up jobs that still run is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from protocol.config.settings import Settings
from protocol.messages.model_details import Described, FileFacts, StartDescription
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.models.files import ModelFiles
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs
from supervisor.scheduler.view import SchedulerView

MODULE: Final = "workers.jobs.describe"
FILE_DEADLINE_S: Final = 5.0
"""How long a job may take for one file; the setting peer_silence if that is less."""
START_DEADLINE_S: Final = 4.0
"""How long its start may take before that."""

log = logs.get_logger()
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
    """What is known about files, and the jobs that read more. Pure."""

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


class _WaitingCall(NamedTuple):
    keys: frozenset[FileKey]
    answer: Callable[[], None]


def file_key(found: ModelFiles) -> FileKey:
    """Return the key under which the header of a model's files is remembered."""
    return FileKey(found.path, found.size, found.modified)


class FileHeaders:
    """What is known about files, and the calls that wait for more."""

    def __init__(self, settings: Settings, loop: Loop, jobs: Jobs, view: SchedulerView) -> None:
        """Nothing was read yet."""
        self._settings, self._loop, self._jobs, self._view = settings, loop, jobs, view
        self._reads = HeaderReads()
        self._waiting: list[_WaitingCall] = []

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {Described: self._result}

    def facts(self, key: FileKey) -> FileFacts:
        """Return what is known about a file's content."""
        return self._reads.facts(key)

    def when_read(self, keys: frozenset[FileKey], seconds: float, answer: Callable[[], None]) -> None:
        """Call ``answer`` when these files were read, at once if none need be read, and at the latest after ``seconds``."""
        waiting = _WaitingCall(keys, answer)
        self._waiting.append(waiting)
        if self._view.closing:
            self._answer(waiting)
            return
        self._go_on()
        if waiting in self._waiting:
            self._loop.call_later(seconds, partial(self._time_out, waiting, seconds))

    def _go_on(self) -> None:
        """Answer the calls that no longer wait for a file; read more files for the others."""
        now = self._loop.now()
        for waiting in list(self._waiting):
            if all(self._reads.settled(key, now) for key in waiting.keys):
                self._answer(waiting)
        files = self._reads.next_files((key for waiting in self._waiting for key in sorted(waiting.keys)), now)
        if files:
            job = self._jobs.start(MODULE, self._ended, StartDescription([key.path for key in files]))
            self._reads.begin(job, files)
            self._watch(job, START_DEADLINE_S)

    def _answer(self, waiting: _WaitingCall) -> None:
        self._waiting.remove(waiting)
        waiting.answer()

    def _time_out(self, waiting: _WaitingCall, seconds: float) -> None:
        if waiting in self._waiting:
            log.info("headers of model files were not read in time", seconds=seconds)
            self._answer(waiting)

    # The job

    def _result(self, job: str, message: Described, _payload: bytes) -> None:
        if self._reads.received(job, message.facts):
            self._jobs.dismiss(job)
        else:
            self._watch(job)
        self._go_on()

    def _watch(self, job: str, start: float = 0.0) -> None:
        """Give up a job that does not read another file in time. ``start``: seconds that its start may take."""
        before = self._reads.progress(job)
        if before is not None:
            seconds = start + min(FILE_DEADLINE_S, self._settings.peer_silence)
            self._loop.call_later(seconds, partial(self._give_up_if_stuck, job, before))

    def _give_up_if_stuck(self, job: str, before: int) -> None:
        if self._reads.progress(job) != before:
            return
        stuck = self._reads.give_up(job, self._loop.now())
        log.error("job hangs at a model file", job=job, path=stuck.path if stuck else "", retry_in=PAUSE_S)
        self._jobs.give_up(job)
        self._go_on()

    def _ended(self, job: str, why: str) -> None:
        unread = self._reads.ended(job)
        if unread:
            log.warning("headers of model files were not read", files=len(unread), reason=why)
        # The failure may be over by the next call, so it is not remembered. These calls do not wait for another job.
        for waiting in [waiting for waiting in self._waiting if not waiting.keys.isdisjoint(unread)]:
            self._answer(waiting)
        self._go_on()
