"""OpenAI's event stream: the engine's events unchanged, pings, and how the stream ends. Pure."""

from __future__ import annotations

from typing import ClassVar, Final

from gateway.api.common.inference.stream_writer import StreamWriter
from gateway.http.errors import error_responses
from protocol.failures import Failure

DONE: Final = b"data: [DONE]\n\n"
PING: Final = b": still here\n\n"


class EventStreamWriter(StreamWriter):
    """Passes events on; keeps no state."""

    media_type: ClassVar[str] = "text/event-stream; charset=utf-8"

    def events(self, events: bytes) -> bytes:
        """Return the events unchanged."""
        return events

    def end(self) -> bytes:
        """Return the end marker."""
        return DONE

    def error(self, failure: Failure, label: str) -> bytes:
        """Return an event with the error; no end marker follows it."""
        return b"data: " + error_responses.stream_error(failure, label) + b"\n\n"

    def ping(self) -> bytes:
        """Return a comment."""
        return PING
