"""``pull``: download a model of the catalogue, with a plain answer or as server-sent events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import falcon
import msgspec

from gateway.calls import Follower
from gateway.dialects.naming import Body, flag_of, model_of, optional_body, text_of
from gateway.house import House
from gateway.visit import of
from protocol import wire
from protocol.admin import Answer, LogBatch, Progress, Pulled, PullModel
from protocol.failures import Code, Failure, LemonbusError, invalid

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


def complete_event(pulled: Pulled) -> bytes:
    """Return the document's ``complete`` event."""
    return event("complete", {"file_index": pulled.files, "total_files": pulled.files, "percent": 100})


def error_event(failure: Failure, label: str) -> bytes:
    """Return the document's ``error`` event: ``error`` is the message itself."""
    return event("error", {"error": failure.message, "code": failure.code.value, "request_id": label})


def check_registration(body: Body) -> None:
    """Raise what is wrong with a request that registers a model: the caller's mistakes, then that it is not served."""
    if not text_of(body, "checkpoint") and not text_of(body, "recipe"):
        return
    if not model_of(body).startswith("user."):
        raise invalid("`model_name` of a model that is registered must begin with `user.`", "model_name")
    for key in ("checkpoint", "recipe"):
        if not text_of(body, key):
            raise invalid(f"`{key}` is required to register a model", key)
    raise Failure(Code.UNSUPPORTED, "this server pulls models of its catalogue; it cannot register new ones").raised()


class PullEvents:
    """The stream of one download's events. Closing it leaves the download alone."""

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
            yield complete_event(wire.unpack(self._follower.report, Pulled))
        except LemonbusError as problem:
            if problem.failure.code not in _NOBODY:
                yield error_event(problem.failure, self._label)

    def close(self) -> None:
        """The client is gone, or has all: gunicorn calls this."""
        self._follower.close()


class Pull:
    """Download a model that is registered."""

    changes: ClassVar[frozenset[str]] = frozenset({"POST"})

    def __init__(self, house: House) -> None:
        """Ask ``house``."""
        self._house = house

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer when it is there; with ``stream`` tell how far it is until then.

        A client that hangs up does not stop the download.
        """
        body = optional_body(req, self._house.settings)
        name = of(req.env).model = model_of(body)
        check_registration(body)
        if flag_of(body, "stream"):
            self._stream(req, resp, name)
            return
        pulled = self._house.call(req.env, lambda number: PullModel(number, name), Pulled)
        resp.content_type = falcon.MEDIA_JSON
        resp.data = msgspec.json.encode(
            {"status": "success", "message": f"Installed model: {pulled.name}", "model_name": pulled.name}
        )

    def _stream(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        visit = of(req.env)
        silence = self._house.settings.header_silence
        follower = self._house.follow(req.env, lambda number: PullModel(number, name, progress=True))
        try:
            first = follower.next(silence)
        except BaseException as problem:
            follower.close()
            # A download that failed at once is told as one that failed later; the caller's mistakes have a status.
            if not isinstance(problem, LemonbusError) or problem.failure.code != Code.DOWNLOAD_FAILED:
                raise
            visit.failure = problem.failure
            resp.data = error_event(problem.failure, visit.label)
        else:
            resp.stream = PullEvents(follower, first, visit.label, silence)
        resp.content_type = "text/event-stream"
        resp.set_header("Cache-Control", "no-cache")
