"""The gateway's side of the decoder processes: few, started on demand, killed when their client has left.

A greenlet that waits for a decoder blocks no other one. An order and its answer are a head of fixed size and the bytes of a file,
or its base64: a large one would hold the gateway's loop.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import gevent
from gevent import socket
from gevent.event import Event

from gateway.decoding.limits import DECODE_DEADLINE_S, DECODE_TIMEOUT_S, MAX_DECODERS, MAX_DECODERS_OF_CLIENT
from gateway.fair_limiter import FairLimiter
from gateway.process_watch import ProcessWatch
from protocol.failures import Code, Failure

IMAGE, IMAGE_WITH_ALPHA, RECORDING = range(3)
DONE, REFUSED = range(2)
ORDER: Final = struct.Struct("<B?dIdI")
"""What is sent, whether in base64, the pixels or seconds and the bytes that may come of it, the processor seconds that it may take,
and its bytes."""
_ANSWER: Final = struct.Struct("<Bdd16pI")
"""Whether it succeeded, its pixels or seconds, the processor seconds that it took, its type, and bytes."""
_LEAST_S: Final = 0.1
_PACKAGES: Final = str(Path(__file__).parents[2])


class AbandonedError(Exception):
    """The client has left."""


class RefusedError(Exception):
    """Why the decoder refused a file, in words for the client."""


class Decoded(NamedTuple):
    """A decoded file, safe for an engine."""

    kind: str
    """Media type of an image, format of a recording."""
    data: bytes
    """In base64 if it was sent so."""
    cost: float
    """Pixels or seconds."""


class Budget(NamedTuple):
    """The limits for a file."""

    cost: float
    """Pixels or seconds."""
    size: int
    """Bytes, of its base64 if it is sent so."""


def answer(status: int, decoded: Decoded, took: float) -> bytes:
    """Return an answer in the form that is sent. ``took``: processor seconds."""
    return _ANSWER.pack(status, decoded.cost, took, decoded.kind.encode(), len(decoded.data)) + decoded.data


def receive(connection: Any, size: int) -> bytes:
    """Return this many bytes; raises EOFError if the other side ends first."""
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
            # Python's subprocess under gevent forks, and runs Python in the child beside the locks of this process's
            # other threads.
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
        self.late = False
        """Whether it was killed at its deadline."""

    def decode(self, kind: int, budget: Budget, seconds: float, data: bytes | str) -> tuple[int, float, Decoded]:
        """Return whether it succeeded, the processor seconds that it took, and the result; raises EOFError or OSError."""
        sent = data.encode("ascii", "replace") if isinstance(data, str) else data
        self._socket.sendall(ORDER.pack(kind, isinstance(data, str), *budget, seconds, len(sent)))
        self._socket.sendall(sent)
        status, cost, took, name, size = _ANSWER.unpack(receive(self._socket, _ANSWER.size))
        return status, took, Decoded(name.decode(), receive(self._socket, size), cost)

    def exit_code(self) -> int:
        """Return how it ended: 0 if it had nothing to do, negative for a signal. Waits for its end."""
        self._ended.wait()
        return self._exit_code

    def _reap(self) -> None:
        _, status = os.waitpid(self.pid, os.WNOHANG)
        self._exit_code = os.waitstatus_to_exitcode(status)
        self._ended.set()

    def kill(self) -> None:
        """End it, also if it is stopped: a greenlet that waits for its answer gets EOFError."""
        if not self._ended.is_set():
            os.kill(self.pid, signal.SIGKILL)

    def kill_late(self) -> None:
        """End it at its deadline."""
        self.late = True
        self.kill()

    def close(self) -> None:
        """Kill it and forget it."""
        self.kill()
        self.exit_code()
        self._socket.close()


_limiter: Final = FairLimiter(MAX_DECODERS, MAX_DECODERS_OF_CLIENT)
_idle: Final[list[_Decoder]] = []


class DecoderSession:
    """Decodes the files of one request, one after the other: each waits for a turn of its client."""

    def __init__(self, client: str) -> None:
        """``client``: the name of its key, or its address."""
        self._client = client
        self._woken = Event()
        self._decoder: _Decoder | None = None
        self._abandoned = False
        self._seconds_left = DECODE_TIMEOUT_S

    def decode(self, kind: int, budget: Budget, data: bytes | str) -> Decoded:
        """Return the decoded file; a text is base64, and so is what comes of it.

        Raises :class:`RefusedError`, :class:`AbandonedError` after :meth:`abandon`, ``overloaded`` if there is no answer in time,
        and RuntimeError if no decoder can work.
        """
        turn = self._woken.set
        _limiter.wait(self._client, turn)
        try:
            self._woken.wait()
            while not self._abandoned:
                answer = self._ask_decoder(kind, budget, data)
                if answer is not None:
                    return self._read_answer(*answer)
            raise AbandonedError
        finally:
            self._woken.clear()
            _limiter.end(self._client, turn)

    def abandon(self) -> None:
        """Decode nothing more: the client has left. May be called from the hub."""
        self._abandoned = True
        self._woken.set()
        if self._decoder is not None:
            self._decoder.kill()

    def _ask_decoder(self, kind: int, budget: Budget, data: bytes | str) -> tuple[int, float, Decoded] | None:
        """Return a decoder's answer; None if it had ended before, or the client has left."""
        mine = self._decoder = _idle.pop() if _idle else _Decoder()
        answer = None
        # A stopped process takes no processor time: that limit would never end it.
        deadline = gevent.spawn_later(DECODE_DEADLINE_S, mine.kill_late)
        try:
            answer = mine.decode(kind, budget, max(self._seconds_left, _LEAST_S), data)
        except (OSError, EOFError):
            self._raise_reason(mine)
        finally:
            deadline.kill(block=False)
            self._decoder = None
            if answer is None:
                mine.close()
            else:
                _idle.append(mine)
        return answer

    def _raise_reason(self, decoder: _Decoder) -> None:
        """Raise why a decoder ended without an answer, unless another one may be asked."""
        code = decoder.exit_code()
        if self._abandoned or code == 0:
            return
        if code > 0:
            raise RuntimeError(f"the decoder exited with code {code}") from None
        if decoder.late:
            message = f"an image or recording was not decoded within {DECODE_DEADLINE_S:g} s: try again later"
            raise Failure(Code.OVERLOADED, message, retry_after=1).raised() from None
        raise RefusedError(f"decoding it takes more than {DECODE_TIMEOUT_S:g} s, or too much memory") from None

    def _read_answer(self, status: int, took: float, decoded: Decoded) -> Decoded:
        self._seconds_left -= took
        if status == REFUSED:
            raise RefusedError(decoded.data.decode())
        return decoded
