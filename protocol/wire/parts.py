"""Long messages between machines, sent in parts.

A connection of ZeroMQ carries one frame after the other, and accepts no frame that is longer than the listener allows: not even
from a peer that has not shown its key yet. So frames between machines are short, and a longer message is several of them, one
directly after the other. Each part that arrives shows that the peer lives, even if the whole message takes minutes.

A part is a line, ``LB+ first``, ``LB+ next`` or ``LB+ last``, and bytes of the message. A frame of any other form is a whole message.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Final

from protocol.wire.envelope import MalformedError

PART_BYTES: Final = 65_536
"""A longer message is sent in parts of this size."""
MAX_FRAME_BYTES: Final = PART_BYTES + 1024
"""What a listener accepts as one frame: a part, its line, and what CURVE adds."""
REPEAT_S: Final = 0.5
"""How often a peer shows that it lives while a long message arrives."""
_PING: Final = b"LB0 Ping\n"
_MARK: Final = b"LB+ "
_FIRST, _NEXT, _LAST = (_MARK + word + b"\n" for word in (b"first", b"next ", b"last "))
_LINE: Final = len(_FIRST)


class PartsError(MalformedError):
    """Parts that do not belong together, or are those of a message that is too long."""


def split(frame: bytes) -> Iterator[bytes]:
    """Yield the frames in which to send a message."""
    if len(frame) <= PART_BYTES:
        yield frame
        return
    starts = range(0, len(frame), PART_BYTES)
    for start in starts:
        mark = _FIRST if start == 0 else _LAST if start == starts[-1] else _NEXT
        yield mark + frame[start : start + PART_BYTES]


class PartialMessage:
    """What has arrived of a message on one connection."""

    def __init__(self, longest: float = math.inf) -> None:
        """``longest``: bytes of the longest message that the peer may send."""
        self._longest = longest
        self._parts: list[bytes] = []
        self._size = 0

    def take(self, frame: bytes) -> bytes | None:
        """Take a frame; return the message of which it is the last part, or all; None if more is to come.

        Raises :class:`PartsError`; the rest of such a message also raises it.
        """
        if not frame.startswith(_MARK):
            self._forget()
            return frame
        line = frame[:_LINE]
        if line == _FIRST:
            self._forget()
        elif not self._parts or line not in (_NEXT, _LAST):
            self._forget()
            raise PartsError("a part without the ones before it")
        self._size += len(frame) - _LINE
        if self._size > self._longest:
            self._forget()
            raise PartsError(f"a message of more than {self._longest:g} bytes")
        self._parts.append(frame)
        if line != _LAST:
            return None
        message = b"".join(memoryview(part)[_LINE:] for part in self._parts)
        self._forget()
        return message

    def _forget(self) -> None:
        self._parts, self._size = [], 0


class SupervisorMessages:
    """The messages of a supervisor on another node.

    While a long one arrives, the next Ping waits behind it. So the last one is given again, and answered again, as long as
    there are parts: this is how the supervisor learns that its peer lives.
    """

    def __init__(self) -> None:
        """None has come."""
        self._message = PartialMessage()
        self._ping = b""
        self._answered = 0.0

    def take(self, frame: bytes) -> bytes | None:
        """Take a frame; return the message to handle now, None if there is none. Raises :class:`PartsError`."""
        message, now = self._message.take(frame), time.monotonic()
        if message is None:
            message = self._ping if self._ping and now - self._answered >= REPEAT_S else None
        elif message.startswith(_PING):
            self._ping = message
        else:
            return message
        if message is not None:
            self._answered = now
        return message
