"""The streamed answer of a long call to the supervisor (a download, an installation): progress, then complete or error.

A :class:`ProgressWriter` writes it in a dialect's form, as a :class:`~gateway.api.common.inference.stream_writer.StreamWriter`
writes tokens.
"""

from __future__ import annotations

import abc
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from gateway.api.common import ndjson
from gateway.api.common.operations import EVENT_STREAM, Stream
from gateway.api.common.server_sent_events import PING, event
from gateway.http.request_context import request_context
from gateway.http.stream_headers import set_stream
from protocol.failures import CLIENT_LEFT_CODES, DOWNLOAD_FAILURES, Failure, LemonbusError
from protocol.messages.calls import CallResult, Progress
from protocol.messages.log_stream import LogBatch

if TYPE_CHECKING:  # the command line imports routes that answer so
    import falcon

    from gateway.bus.calls import BuildMessage, SupervisorCall
    from gateway.bus.session import SupervisorSession

PROGRESS_STREAM: Final = Stream(
    EVENT_STREAM,
    'event: progress\ndata: {"file":"model.gguf","file_index":1,"total_files":1,"percent":50}\n\n'
    'event: complete\ndata: {"file_index":1,"total_files":1,"percent":100}\n\n',
)
"""The default form, for the OpenAPI document."""
PROGRESS_INTERVAL_S: Final = 0.125
"""The shortest time between two progress events."""


class ProgressEvent(msgspec.Struct):
    """The data of the documented ``progress`` event. `percent` and the bytes are those of the present file."""

    file: str
    file_index: int
    total_files: int
    bytes_downloaded: int
    bytes_total: int
    percent: int


def progress_values(progress: Progress) -> tuple[str, int, int, int, int, int]:
    """Return the values of :class:`ProgressEvent`'s fields, in their order."""
    sizes = progress.bytes_downloaded, progress.bytes_total, progress.percent
    return (progress.file, progress.file_index, progress.total_files, *sizes)


class CompleteEvent(msgspec.Struct, kw_only=True):
    """The data of the documented ``complete`` event. The last three are those of an installation."""

    file_index: int
    total_files: int
    percent: int = 100
    status: str | msgspec.UnsetType = msgspec.UNSET
    recipe: str | msgspec.UnsetType = msgspec.UNSET
    backend: str | msgspec.UnsetType = msgspec.UNSET


EVENTS: Final = {"progress": ProgressEvent, "complete": CompleteEvent}
"""Event → its data, in the documented streams. The third one is ``error``, the last one of a stream that failed."""


class ProgressWriter(abc.ABC):
    """Writes one streamed answer. Pure; each answer has its own, so it may keep state between calls.

    The default form is Lemonade's documented server-sent events. A dialect with another form overrides what differs.
    """

    media_type: ClassVar[str] = EVENT_STREAM

    def progress(self, progress: Progress) -> bytes:
        """Return the translation of one progress report."""
        return event("progress", ProgressEvent(*progress_values(progress)))

    @abc.abstractmethod
    def complete(self, report: bytes) -> bytes:
        """Return the end of the answer for a call that succeeded, from its packed report."""

    def error(self, failure: Failure, label: str) -> bytes:
        """Return the end of the answer for a call that failed. ``label`` is the request id."""
        return event("error", {"error": failure.message, "code": failure.code.value, "request_id": label})

    def ping(self) -> bytes:
        """Return what keeps the connection alive while there is no progress; empty bytes if the form has nothing for this."""
        return PING


class NdjsonProgressWriter(ProgressWriter):
    """Writes lines of JSON, as Mullama's and Ollama's downloads have them."""

    media_type: ClassVar[str] = ndjson.MEDIA_TYPE

    def error(self, failure: Failure, label: str) -> bytes:
        """Return the last line of a download that failed."""
        return ndjson.error_line(failure, label)

    def ping(self) -> bytes:
        """Return nothing, because NDJSON has no comments."""
        return b""


class ProgressStream:
    """``resp.stream`` of one call. Closing it does not stop what the call began."""

    def __init__(
        self,
        call: SupervisorCall,
        first: CallResult | Progress | LogBatch | None,
        writer: ProgressWriter,
        label: str,
        silence: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with ``first``, which has arrived (``None``: nothing arrived for ``silence`` seconds)."""
        self._call = call
        self._first = first
        self._writer = writer
        self._label = label
        self._silence = silence
        self._clock = clock

    def __iter__(self) -> Iterator[bytes]:
        return filter(None, self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        writer = self._writer
        message = self._first
        unsent: Progress | None = None
        next_at = 0.0
        try:
            while not isinstance(message, CallResult):
                if isinstance(message, Progress):
                    unsent = message
                now = self._clock()
                if unsent is None:
                    yield writer.ping()
                elif now >= next_at:
                    yield writer.progress(unsent)
                    unsent, next_at = None, now + PROGRESS_INTERVAL_S
                message = self._call.next(max(0.0, next_at - now) if unsent else self._silence)
            if unsent is not None:
                yield writer.progress(unsent)
            yield writer.complete(self._call.report)
        except LemonbusError as problem:
            if problem.failure.code not in CLIENT_LEFT_CODES:
                yield writer.error(problem.failure, self._label)

    def close(self) -> None:
        """End the call for this client. The server calls this however the response ended."""
        self._call.close()


def stream_progress(
    session: SupervisorSession,
    req: falcon.Request,
    resp: falcon.Response,
    build: BuildMessage,
    writer: ProgressWriter,
) -> None:
    """Answer a call with its stream of progress.

    A download that fails at once is reported in the stream, like one that fails later. A mistake of the caller has its
    HTTP status.
    """
    context = request_context(req.env)
    silence = session.settings.header_silence
    call = session.start_call(req.env, build)
    try:
        first = call.next(silence)
    except BaseException as problem:
        call.close()
        if not isinstance(problem, LemonbusError) or problem.failure.code not in DOWNLOAD_FAILURES:
            raise
        context.failure = problem.failure
        resp.content_type = writer.media_type
        resp.cache_control = ["no-cache"]
        resp.data = writer.error(problem.failure, context.label)
    else:
        set_stream(resp, ProgressStream(call, first, writer, context.label, silence), writer.media_type)
