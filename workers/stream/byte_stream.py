"""An engine's answer in bytes, such as sound: passes them on, and knows whether all have arrived. Pure.

Bytes have no end marker, so only HTTP says that they are complete: by a length, or by the last chunk.
"""

from __future__ import annotations

from typing import Final

from protocol.wire.speech import USAGE_TRAILER
from workers.stream.sse_filter import ChoiceSummary, FilteredEvents
from workers.stream.usage import decode_usage

_USAGE: Final = USAGE_TRAILER.lower().encode()


class ByteStream:
    """One answer."""

    def __init__(self) -> None:
        """Begin an answer."""
        self.size = 0
        """Bytes so far."""
        self._summary = ChoiceSummary()

    def feed(self, data: bytes) -> FilteredEvents:
        """Take bytes from the engine; return them as one piece."""
        self.size += len(data)
        return FilteredEvents(data, 1, alive=False)

    def note_trailer(self, name: bytes, value: bytes) -> None:
        """Take a header that follows the body: the token counts, if it has them. A malformed one is ignored."""
        if name == _USAGE:
            self._summary.usage = decode_usage(value)

    def is_complete(self, until_close: bool) -> bool:
        """Return whether the response, which has ended, is whole. ``until_close``: only the end of the connection ended it."""
        return self.size > 0 and not until_close

    def summaries(self) -> list[ChoiceSummary]:
        """Return what the engine reported."""
        return [self._summary]
