"""The events of a session as JSON texts: what clients send, and what they get. Pure."""

from __future__ import annotations

import itertools
import secrets
from typing import Any, Final

import msgspec

from gateway.http import errors
from protocol.failures import DECODE_ERRORS, Failure, invalid

TRANSCRIPTION: Final = "conversation.item.input_audio_transcription"


class RealtimeEvent(msgspec.Struct):
    """An event of a client. Which fields it needs depends on its type."""

    type: str
    event_id: str | None = None
    session: dict[str, Any] | None = None
    audio: str | None = None


_decode: Final = msgspec.json.Decoder(RealtimeEvent).decode
_encode: Final = msgspec.json.Encoder().encode


def client_event(message: str | bytes) -> RealtimeEvent:
    """Return the event in a message; raises ``invalid_request`` if it is none."""
    try:
        return _decode(message)
    except (UnicodeEncodeError, *DECODE_ERRORS):  # a text may contain half of a surrogate pair
        raise invalid('expected an event as a JSON object, such as {"type": "input_audio_buffer.commit"}') from None


def new_id(kind: str) -> str:
    """Return a fresh id, such as ``item_…``."""
    return f"{kind}_{secrets.token_hex(12)}"


class RealtimeEventWriter:
    """Writes the events of one session."""

    def __init__(self) -> None:
        """Begin with the first event."""
        self._prefix, self._numbers = secrets.token_hex(6), itertools.count(1)

    def event(self, kind: str, **fields: Any) -> str:
        """Return an event."""
        return _encode({"type": kind, "event_id": f"event_{self._prefix}{next(self._numbers):06}", **fields}).decode()

    def error(self, failure: Failure, label: str, event_id: str | None = None) -> str:
        """Return an ``error``. ``label``: the request id of the session. ``event_id``: of the client's event that caused it."""
        return self.event("error", error={**errors.error_object(failure, label), "event_id": event_id})

    def transcription(self, kind: str, item_id: str, **fields: Any) -> str:
        """Return an event about the transcription of a turn."""
        return self.event(f"{TRANSCRIPTION}.{kind}", item_id=item_id, content_index=0, **fields)

    def failed(self, item_id: str, failure: Failure, label: str) -> str:
        """Return the event of a turn that was not transcribed. ``label``: the request id of the turn."""
        return self.transcription("failed", item_id, error=errors.error_object(failure, label))

    def item(self, kind: str, item_id: str, previous: str | None) -> str:
        """Return an event about the item that a turn is in the conversation."""
        content = [{"type": "input_audio", "transcript": None}]
        item = {"id": item_id, "object": "realtime.item", "type": "message", "status": "completed", "role": "user"}
        return self.event(f"conversation.item.{kind}", previous_item_id=previous, item={**item, "content": content})
