"""Cuts the bytes of an engine's stream into whole server-sent events, and rewrites those that have a certain key. Pure.

`sse_filter` checks what the events contain, and `workers/requests/engine_answer.py` makes an error of a broken one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
EVENT_END: Final = b"\n\n"
_COMMENT: Final = b":"


class SseParser:
    """Cuts one stream."""

    def __init__(self) -> None:
        """Nothing has arrived."""
        self.rest = bytearray()
        """What has arrived after the last whole event."""

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the engine; return the events that they complete.

        Raises ValueError for one that does not end.
        """
        if not self.rest and data.endswith(EVENT_END):
            return data
        complete = EVENT_END in bytes(self.rest[-1:]) + data
        self.rest += data
        if not complete:
            if len(self.rest) > MAX_EVENT_BYTES:
                raise ValueError("the engine sent an event without an end")
            return b""
        end = self.rest.rfind(EVENT_END) + len(EVENT_END)
        whole = bytes(self.rest[:end])
        del self.rest[:end]
        return whole


def payload_of(event: bytes) -> bytes:
    """Return the data of an event, empty for a comment. Raises ValueError for something that no engine sends."""
    event = event.strip()
    if event.startswith(b"data:"):
        return event[5:].strip()
    if event and not event.startswith(_COMMENT):
        raise ValueError("the engine sent an event without data")
    return b""


def data_of(event: bytes) -> bytes:
    """Return the data of an event of any server: its other fields and comments are left out."""
    lines = (line for line in event.split(b"\n") if line.startswith(b"data:"))
    return b"\n".join(line[5:].strip() for line in lines)


class LineEnds:
    """Rewrites the line ends of one stream as line feeds: other servers also end lines with carriage returns."""

    def __init__(self) -> None:
        """Nothing has arrived."""
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes; return them with line feeds. A carriage return at their end waits for what follows it."""
        if b"\r" not in data and not self._held:
            return data
        data = self._held + data
        self._held = b"\r" if data.endswith(b"\r") else b""
        return data.removesuffix(self._held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class EventTranslator:
    """Translates one stream."""

    def __init__(self, key: bytes, rewrite: Callable[[bytes], bytes]) -> None:
        """``key``: bytes of a key in JSON. ``rewrite`` takes the JSON of an event with this key and returns other JSON.

        A quote inside a JSON string has a backslash before it, so a text cannot look like a key.
        """
        self._key, self._rewrite = key, rewrite
        self._parser = SseParser()

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the engine; return the events that they complete.

        Raises ``DECODE_ERRORS`` or ValueError for a broken one.
        """
        data = self._parser.feed(data)
        if self._key not in data:
            return data
        return b"".join(self._rewritten(event) + EVENT_END for event in data.split(EVENT_END)[:-1])

    def _rewritten(self, event: bytes) -> bytes:
        if self._key not in event:
            return event
        return b"data: " + self._rewrite(event.removeprefix(b"data:"))
