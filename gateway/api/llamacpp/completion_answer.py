"""Answers of llama.cpp's own completions: the engine's events, and ``response_fields``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import msgspec

from gateway.api.common.inference.stream_writer import StreamWriter
from gateway.api.llamacpp.errors import llamacpp_error_event
from protocol.failures import Failure
from protocol.wire.openai_chunks import payloads

PING: Final = b": still here\n\n"
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_answer: Final = msgspec.json.Decoder(dict[str, Any] | list[dict[str, Any]]).decode


def with_fields(body: bytes, wanted: Sequence[str] | None) -> bytes:
    """Return an answer, or a list of several, with only the wanted fields; None: all of them."""
    if wanted is None:
        return body
    answer = _answer(body)
    if isinstance(answer, list):
        return msgspec.json.encode([selected_fields(each, wanted) for each in answer])
    return msgspec.json.encode(selected_fields(answer, wanted))


def selected_fields(answer: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
    """Return the fields with these paths (``generation_settings/n_predict``); missing ones are left out."""
    found: dict[str, Any] = {}
    for path in wanted:
        value: Any = answer
        for name in path.split("/"):
            if not isinstance(value, dict) or name not in value:
                break
            value = value[name]
        else:
            found[path] = value
    return found


class CompletionStreamWriter(StreamWriter):
    """Passes events on.

    The last event of each completion says ``"stop":true``; only this one has ``response_fields``.
    """

    media_type: ClassVar[str] = "text/event-stream; charset=utf-8"

    def __init__(self, wanted: Sequence[str] | None) -> None:
        """Write only the wanted fields of the last event; None: all of them."""
        self._wanted = wanted

    def events(self, events: bytes) -> bytes:
        """Return the events for the client."""
        if self._wanted is None or b'"stop":true' not in events:
            return events
        return b"".join(b"data: %b\n\n" % self._payload(payload) for payload in payloads(events))

    def _payload(self, payload: bytes) -> bytes:
        event = _object(payload)
        return with_fields(payload, self._wanted) if event.get("stop") is True else payload

    def end(self) -> bytes:
        """Return nothing: the last events of the completions were the end."""
        return b""

    def error(self, failure: Failure, label: str) -> bytes:
        """Return llama-server's error event."""
        return llamacpp_error_event(failure, label)

    def ping(self) -> bytes:
        """Return a comment."""
        return PING
