"""Server-sent events of what takes its time and was asked for with ``stream``: progress, then complete or error."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import falcon
import msgspec

from gateway.calls import Build, Follower
from gateway.house import House
from gateway.visit import of
from protocol.admin import Answer, LogBatch, Progress
from protocol.failures import Code, Failure, LemonbusError

INTERVAL: Final = 0.125
"""Least seconds between two ``progress`` events."""
PING: Final = b": still here\n\n"
_NOBODY: Final = frozenset({Code.CANCELLED, Code.CLIENT_TOO_SLOW})


def event(name: str, data: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))


def progress_event(progress: Progress) -> bytes:
    """Return the document's ``progress`` event."""
    return event(
        "progress",
        {
            "file": progress.file,
            "file_index": progress.file_index,
            "total_files": progress.total_files,
            "bytes_downloaded": progress.bytes_downloaded,
            "bytes_total": progress.bytes_total,
            "percent": progress.percent,
        },
    )


def complete_event(files: int, **more: Any) -> bytes:
    """Return the document's ``complete`` event."""
    return event("complete", {"file_index": files, "total_files": files, "percent": 100, **more})


def error_event(failure: Failure, label: str) -> bytes:
    """Return the document's ``error`` event: ``error`` is the message itself."""
    return event("error", {"error": failure.message, "code": failure.code.value, "request_id": label})


class ProgressEvents(abc.ABC):
    """The stream of one call's events. Closing it leaves what was begun alone."""

    def __init__(
        self,
        follower: Follower,
        first: Answer | Progress | LogBatch | None,
        label: str,
        silence: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on after ``first``, which came already (``None``: nothing came for ``silence`` seconds)."""
        self._follower = follower
        self._first = first
        self._label = label
        self._silence = silence
        self._clock = clock

    @abc.abstractmethod
    def complete(self, report: bytes) -> bytes:
        """Return the last event of a call that went well, from its packed report."""

    def __iter__(self) -> Iterator[bytes]:
        message = self._first
        held: Progress | None = None
        free = 0.0
        try:
            while not isinstance(message, Answer):
                if isinstance(message, Progress):
                    held = message
                now = self._clock()
                if held is None:
                    yield PING
                elif now >= free:
                    yield progress_event(held)
                    held, free = None, now + INTERVAL
                message = self._follower.next(max(0.0, free - now) if held else self._silence)
            if held is not None:
                yield progress_event(held)
            yield self.complete(self._follower.report)
        except LemonbusError as problem:
            if problem.failure.code not in _NOBODY:
                yield error_event(problem.failure, self._label)

    def close(self) -> None:
        """The client is gone, or has all: gunicorn calls this."""
        self._follower.close()


def tell(house: House, req: falcon.Request, resp: falcon.Response, build: Build, events: type[ProgressEvents]) -> None:
    """Answer a call with its stream of events.

    What fails at once is told as what failed later; the caller's mistakes have a status.
    """
    visit = of(req.env)
    silence = house.settings.header_silence
    follower = house.follow(req.env, build)
    try:
        first = follower.next(silence)
    except BaseException as problem:
        follower.close()
        if not isinstance(problem, LemonbusError) or problem.failure.code != Code.DOWNLOAD_FAILED:
            raise
        visit.failure = problem.failure
        resp.data = error_event(problem.failure, visit.label)
    else:
        resp.stream = events(follower, first, visit.label, silence)
    resp.content_type = "text/event-stream"
    resp.set_header("Cache-Control", "no-cache")
