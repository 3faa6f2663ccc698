"""An engine's answer in bytes, such as sound: passes them on, and knows whether all have arrived. Pure.

Bytes have no end marker, so only HTTP says that they are complete: by a length, or by the last chunk. Some servers send an
error with status 200. The type of the answer tells, and if there is none or a wrong one, its first bytes.
"""

from __future__ import annotations

from typing import Final

from protocol.wire.speech import USAGE_TRAILER
from workers.stream.answer_forms import is_error_body
from workers.stream.sse_filter import ChoiceSummary, FilteredEvents
from workers.stream.usage import decode_usage

MAX_TEXT_BYTES: Final = 65_536
"""How much of a text is kept: it is an error message."""
_LOOKED_AT: Final = 64
"""How many bytes of an answer that begins like JSON are held back until it is known what it is."""
_USAGE: Final = USAGE_TRAILER.lower().encode()
_NOTHING: Final = FilteredEvents(b"", 0, alive=False)


class ByteStream:
    """One answer."""

    def __init__(self) -> None:
        """Begin an answer."""
        self.size = 0
        """Bytes so far."""
        self.text: bytes | None = None
        """What came instead of bytes; None: nothing else is known to have come."""
        self._held = b""
        """The first bytes, as long as they may be the beginning of an error."""
        self._looking = True
        self._summary = ChoiceSummary()

    def begin(self, content_type: bytes) -> None:
        """Take the type of the answer, empty if it has none."""
        kind = content_type.partition(b";")[0].strip().lower()
        if kind.startswith(b"text/") or kind.endswith((b"/json", b"+json")):
            self.text, self._looking = b"", False

    def feed(self, data: bytes) -> FilteredEvents:
        """Take bytes from the engine; return them as one piece."""
        self.size += len(data)
        if self.text is not None:
            self.text += data[: MAX_TEXT_BYTES - len(self.text)]
            return _NOTHING
        if self._looking:
            self._held += data
            if self._held.lstrip()[:1] in (b"", b"{") and len(self._held) < _LOOKED_AT:
                return _NOTHING
            data = self.end()
        return FilteredEvents(data, 1, alive=False) if data else _NOTHING

    def end(self) -> bytes:
        """Decide what the first bytes are, if that is still open; return those that are to be passed on."""
        held, self._held = self._held, b""
        if self._looking and is_error_body(held):
            self.text, held = held[:MAX_TEXT_BYTES], b""
        self._looking = False
        return held

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
