"""Rewrites the events of a stream that have a certain key, and passes on all others unread. Pure."""

from __future__ import annotations

from collections.abc import Callable

from workers.stream.whole_events import EVENT_END, WholeEvents


class EventTranslator:
    """Translates one stream."""

    def __init__(self, key: bytes, rewrite: Callable[[bytes], bytes]) -> None:
        """``key``: bytes of a key in JSON. ``rewrite`` takes the JSON of an event with this key and returns other JSON.

        A quote inside a JSON string has a backslash before it, so a text cannot look like a key.
        """
        self._key, self._rewrite = key, rewrite
        self._whole = WholeEvents()

    def feed(self, data: bytes) -> bytes:
        """Take bytes from the engine; return the events that they complete.

        Raises ``DECODE_ERRORS`` or ValueError for a broken one.
        """
        data = self._whole.feed(data)
        if self._key not in data:
            return data
        return b"".join(self._rewritten(event) + EVENT_END for event in data.split(EVENT_END)[:-1])

    def _rewritten(self, event: bytes) -> bytes:
        if self._key not in event:
            return event
        return b"data: " + self._rewrite(event.removeprefix(b"data:"))
