"""The gateway's side of the decoder processes: few, started when they are needed, killed when no client waits for one any more.

A greenlet that waits for a decoder blocks no other one. An order and its answer are a head of fixed size and the bytes of a file.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from gevent import socket, subprocess
from gevent.lock import BoundedSemaphore

from gateway.decoding.limits import DECODE_TIMEOUT_S

IMAGE, IMAGE_WITH_ALPHA, RECORDING = range(3)
DONE, REFUSED = range(2)
ORDER: Final = struct.Struct("<BddI")
"""What is sent, the pixels or seconds that it may have, the processor seconds that it may take, and its bytes."""
_ANSWER: Final = struct.Struct("<Bdd16pI")
"""Whether it was done, the pixels or seconds that it has, the processor seconds that it took, its type, and bytes."""
MAX_DECODERS: Final = 2
"""Processes of one gateway; other requests wait."""
_LEAST_S: Final = 0.1
_PACKAGES: Final = str(Path(__file__).parents[2])


class AbandonedError(Exception):
    """The client has left."""


class RefusedError(Exception):
    """Why the decoder refused a file, in words for the client."""


class Decoded(NamedTuple):
    """A file as an engine may have it."""

    kind: str
    """Media type of an image, format of a recording."""
    data: bytes
    cost: float
    """Pixels or seconds."""


def answer(status: int, decoded: Decoded, took: float) -> bytes:
    """Return an answer as it is sent; ``took``: processor seconds."""
    return _ANSWER.pack(status, decoded.cost, took, decoded.kind.encode(), len(decoded.data)) + decoded.data


def receive(connection: Any, size: int) -> bytes:
    """Return so many bytes; raises EOFError if the other side ends before."""
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise EOFError
        view = view[count:]
    return bytes(data)


class _Decoder:
    """One process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "gateway.decoding"],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PYTHONPATH": _PACKAGES, "PYTHONDONTWRITEBYTECODE": "1"},
            )

    def decode(self, kind: int, limit: float, seconds: float, data: bytes) -> tuple[int, float, Decoded]:
        """Return whether it was done, the processor seconds that it took, and what came of it; raises EOFError or OSError."""
        self._socket.sendall(ORDER.pack(kind, limit, seconds, len(data)))
        self._socket.sendall(data)
        status, cost, took, name, size = _ANSWER.unpack(receive(self._socket, _ANSWER.size))
        return status, took, Decoded(name.decode(), receive(self._socket, size), cost)

    @property
    def ended_by_itself(self) -> bool:
        """Whether it ended because it had nothing to do, not in the middle of an order. Only after it has ended."""
        return bool(self._process.wait() == 0)

    def kill(self) -> None:
        """End it: a greenlet that waits for its answer gets EOFError."""
        self._process.kill()

    def close(self) -> None:
        """Kill it and forget it."""
        self._process.kill()
        self._process.wait()
        self._socket.close()


_slots: Final = BoundedSemaphore(MAX_DECODERS)
_idle: Final[list[_Decoder]] = []


class DecoderSession:
    """A decoder while one request has it: a context manager, which waits until it is its turn."""

    def __init__(self) -> None:
        """Take no decoder yet."""
        self._decoder: _Decoder | None = None
        self._working = self._abandoned = False
        self._seconds_left = DECODE_TIMEOUT_S

    def __enter__(self) -> Self:
        _slots.acquire()
        return self

    def decode(self, kind: int, limit: float, data: bytes) -> Decoded:
        """Return the decoded file; raises :class:`RefusedError`, and :class:`AbandonedError` after :meth:`abandon`."""
        while not self._abandoned:
            fresh = self._decoder is None and not _idle
            mine = self._decoder = self._decoder or (_idle.pop() if _idle else _Decoder())
            self._working = True
            try:
                status, took, decoded = mine.decode(kind, limit, max(self._seconds_left, _LEAST_S), data)
            except (OSError, EOFError):
                again = not fresh and mine.ended_by_itself
                self._end_decoder()
                if self._abandoned or again:
                    continue
                raise RefusedError(f"decoding it takes more than {DECODE_TIMEOUT_S:g} s, or too much memory") from None
            self._working = False
            self._seconds_left -= took
            if status == REFUSED:
                raise RefusedError(decoded.data.decode())
            return decoded
        raise AbandonedError

    def abandon(self) -> None:
        """Let nothing more be decoded: the client has left (from the hub, too)."""
        self._abandoned = True
        if self._decoder is not None and self._working:
            self._decoder.kill()

    def _end_decoder(self) -> None:
        mine, self._decoder = self._decoder, None
        if mine is not None:
            mine.close()

    def __exit__(self, *_: object) -> None:
        if self._working:
            self._end_decoder()
        elif self._decoder is not None:
            _idle.append(self._decoder)
            self._decoder = None
        _slots.release()
