"""Server-sent events of what takes its time and was asked for with ``stream``: progress, then complete or error."""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import falcon
import msgspec

from gateway.bus.calls import BuildMessage, SupervisorCall
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import request_context
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.admin import CallResult, LogBatch, Progress

PROGRESS_INTERVAL_S: Final = 0.125
"""Least seconds between two ``progress`` events."""
PING: Final = b": still here\n\n"
_CLIENT_LEFT_CODES: Final = frozenset({Code.CANCELLED, Code.CLIENT_TOO_SLOW})


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


class ProgressEventStream(abc.ABC):
    """The stream of one call's events. Closing it leaves what was begun alone."""

    def __init__(
        self,
        call: SupervisorCall,
        first: CallResult | Progress | LogBatch | None,
        label: str,
        silence: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Go on after ``first``, which came already (``None``: nothing came for ``silence`` seconds)."""
        self._call = call
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
            while not isinstance(message, CallResult):
                if isinstance(message, Progress):
                    held = message
                now = self._clock()
                if held is None:
                    yield PING
                elif now >= free:
                    yield progress_event(held)
                    held, free = None, now + PROGRESS_INTERVAL_S
                message = self._call.next(max(0.0, free - now) if held else self._silence)
            if held is not None:
                yield progress_event(held)
            yield self.complete(self._call.report)
        except LemonbusError as problem:
            if problem.failure.code not in _CLIENT_LEFT_CODES:
                yield error_event(problem.failure, self._label)

    def close(self) -> None:
        """The client is gone, or has all: gunicorn calls this."""
        self._call.close()


def stream_progress(
    session: SupervisorSession,
    req: falcon.Request,
    resp: falcon.Response,
    build: BuildMessage,
    events: type[ProgressEventStream],
) -> None:
    """Answer a call with its stream of events.

    What fails at once is told as what failed later; the caller's mistakes have a status.
    """
    context = request_context(req.env)
    silence = session.settings.header_silence
    call = session.start_call(req.env, build)
    try:
        first = call.next(silence)
    except BaseException as problem:
        call.close()
        if not isinstance(problem, LemonbusError) or problem.failure.code != Code.DOWNLOAD_FAILED:
            raise
        context.failure = problem.failure
        resp.data = error_event(problem.failure, context.label)
    else:
        resp.stream = events(call, first, context.label, silence)
    resp.content_type = "text/event-stream"
    resp.set_header("Cache-Control", "no-cache")
