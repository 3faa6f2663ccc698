"""A streamed response: OpenAI's semantic events with their sequence numbers. Pure.

``response.created``, ``response.in_progress``, the events of each item, then exactly one of ``response.completed``,
``response.incomplete`` (both: the generation really ended) and ``response.failed``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from gateway.api.common import server_sent_events as sse
from gateway.api.common.inference.stream_writer import ChunkWriter
from gateway.api.responses.output.output_items import Event
from gateway.api.responses.output.response_object import ResponseBuilder
from gateway.server_clock import SERVER_CLOCK
from protocol.failures import Failure
from protocol.wire.openai_chunks import Chunk, read_usage

_TEXT_DELTA: Final = (
    b"event: response.output_text.delta\n"
    b'data: {"type":"response.output_text.delta","sequence_number":%d,'
    b'"item_id":%b,"output_index":%d,"content_index":0,"delta":%b,"logprobs":[]}\n\n'
)
"""There is one for each token, so it is not encoded as a whole."""
_encode: Final = msgspec.json.Encoder().encode


class ResponseEventWriter(ChunkWriter):
    """Writes one response as events."""

    media_type = sse.MEDIA_TYPE

    def __init__(self, builder: ResponseBuilder, clock: Callable[[], float] | None = None) -> None:
        """Write what ``builder`` builds. ``clock`` returns Unix seconds. None means the clock of the server."""
        self._builder = builder
        self._clock = clock or SERVER_CLOCK.seconds
        self._number = 0
        self._ended: list[Event] | None = None
        self._response: dict[str, Any] = {}

    def chunk(self, chunk: Chunk) -> bytes:
        """Return the events of a chunk, after those of the beginning."""
        self._builder.model = self._builder.model or chunk.model
        written = self._begin()
        usage = read_usage(chunk)
        if usage is not None:
            self._builder.usage = usage
        for choice in chunk.choices:
            for event in self._builder.add(choice):
                written += self._event(event)
        return written

    def text(self, text: str) -> bytes:
        """Return the event of one more piece of the open message's text."""
        position = self._builder.add_text(text)
        if position is None:
            return b""
        self._number += 1
        return _TEXT_DELTA % (self._number - 1, _encode(position.item_id), position.output_index, _encode(text))

    def response(self) -> dict[str, Any]:
        """Return the response of a generation that ended, as :meth:`end` will write it, for storing."""
        if self._ended is None:
            self._ended = self._builder.end()
            self._response = self._builder.ended(self._clock())
        return {**self._response, "store": self._builder.stored}

    def end(self) -> bytes:
        """Return the end of the last item and of the response."""
        written = self._begin()
        response = self.response()
        for event in self._ended or ():
            written += self._event(event)
        return written + self._event((f"response.{response['status']}", {"response": response}))

    def error(self, failure: Failure, label: str) -> bytes:
        """Return ``response.failed`` with the output so far."""
        return self._begin() + self._event(("response.failed", {"response": self._builder.failed(failure, label)}))

    def ping(self) -> bytes:
        """Return a comment.

        The first time, return the beginning, so that a client knows the response's id while it waits.
        """
        return self._begin() or sse.PING

    def _begin(self) -> bytes:
        if self._number:
            return b""
        response = self._builder.response("in_progress")
        created = self._event(("response.created", {"response": response}))
        return created + self._event(("response.in_progress", {"response": response}))

    def _event(self, event: Event) -> bytes:
        kind, fields = event
        self._number += 1
        return sse.event(kind, {"type": kind, "sequence_number": self._number - 1, **fields})
