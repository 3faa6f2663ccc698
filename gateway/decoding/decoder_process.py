"""The gateway's side of the decoder processes: few, started when they are needed, killed when no client waits for one any more.

A greenlet that waits for a decoder blocks no other one. An order and its answer are a head of fixed size and the bytes of a file.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from gevent import socket
from gevent.event import Event
from gevent.lock import BoundedSemaphore

from gateway.decoding.limits import DECODE_TIMEOUT_S
from gateway.process_watch import ProcessWatch

IMAGE, IMAGE_WITH_ALPHA, RECORDING = range(3)
DONE, REFUSED = range(2)
ORDER: Final = struct.Struct("<BdIdI")
"""What is sent, the pixels or seconds and the bytes that may come of it, the processor seconds that it may take, and its bytes."""
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


class Budget(NamedTuple):
    """What may come of a file."""

    cost: float
    """Pixels or seconds."""
    size: int
    """Bytes."""


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


def _python_path() -> str:
    return os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH", "")]))


class _Decoder:
    """One process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            # Python's subprocess under gevent forks, and runs Python in the child beside the locks of this process's other threads.
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-P", "-m", "gateway.decoding"],
                {"PYTHONPATH": _python_path(), "PYTHONDONTWRITEBYTECODE": "1"},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
            )
        self._exit_code = 0
        self._ended = Event()
        self._watch = ProcessWatch(self.pid, self._reap)

    def decode(self, kind: int, budget: Budget, seconds: float, data: bytes) -> tuple[int, float, Decoded]:
        """Return whether it was done, the processor seconds that it took, and what came of it; raises EOFError or OSError."""
        self._socket.sendall(ORDER.pack(kind, *budget, seconds, len(data)))
        self._socket.sendall(data)
        status, cost, took, name, size = _ANSWER.unpack(receive(self._socket, _ANSWER.size))
        return status, took, Decoded(name.decode(), receive(self._socket, size), cost)

    def exit_code(self) -> int:
        """Return how it ended: 0 if it had nothing to do, below 0 by a signal. Waits for its end."""
        self._ended.wait()
        return self._exit_code

    def _reap(self) -> None:
        _, status = os.waitpid(self.pid, os.WNOHANG)
        self._exit_code = os.waitstatus_to_exitcode(status)
        self._ended.set()

    def kill(self) -> None:
        """End it: a greenlet that waits for its answer gets EOFError."""
        if not self._ended.is_set():
            os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it and forget it."""
        self.kill()
        self.exit_code()
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

    def decode(self, kind: int, budget: Budget, data: bytes) -> Decoded:
        """Return the decoded file.

        Raises :class:`RefusedError`, :class:`AbandonedError` after :meth:`abandon`, and RuntimeError if no decoder can work.
        """
        while not self._abandoned:
            mine = self._decoder = self._decoder or (_idle.pop() if _idle else _Decoder())
            self._working = True
            try:
                status, took, decoded = mine.decode(kind, budget, max(self._seconds_left, _LEAST_S), data)
            except (OSError, EOFError):
                code = mine.exit_code()
                self._end_decoder()
                if self._abandoned or code == 0:
                    continue
                if code > 0:
                    raise RuntimeError(f"the decoder exited with code {code}") from None
                raise RefusedError(f"decoding it takes more than {DECODE_TIMEOUT_S:g} s, or too much memory") from None
            self._working = False
            self._seconds_left -= took
            if status == REFUSED:
                raise RefusedError(decoded.data.decode())
            return decoded
        raise AbandonedError

    def abandon(self) -> None:
        """Let nothing more be decoded: the client has left (also from the hub)."""
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
