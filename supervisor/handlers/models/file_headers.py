"""The headers of model files: a job process reads them when a call needs them, because a disk may be slow.

What was read is remembered until the file changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from protocol.config.settings import Settings
from protocol.messages.model_details import Described, FileFacts, StartDescription
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.models.files import ModelFiles
from supervisor.models.header_reads import PAUSE_S, FileKey, HeaderReads
from supervisor.runtime.handler_table import Handler
from supervisor.runtime.jobs import Jobs
from supervisor.scheduler.view import SchedulerView

MODULE: Final = "workers.jobs.describe"
FILE_DEADLINE_S: Final = 5.0
"""How long a job may take for one file; the setting peer_silence if that is less."""
START_DEADLINE_S: Final = 4.0
"""How long its start may take before that."""

log = logs.get_logger()


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
            log.warning("headers of model files were not read", files=len(unread), why=why)
        # The failure may be over by the next call, so it is not remembered. These calls do not wait for another job.
        for waiting in [waiting for waiting in self._waiting if not waiting.keys.isdisjoint(unread)]:
            self._answer(waiting)
        self._go_on()
