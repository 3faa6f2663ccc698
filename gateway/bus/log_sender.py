"""Sends the log records of this process to the supervisor, several in one message, and writes the lines of requests together.

Of these lines, the first is written at once, and those of the next 10 ms together. Writing a single line is a sixth of the
work for a small request: two system calls, and code that is not in any cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import gevent
import zmq

from protocol.runtime import logs
from protocol.runtime.log_output import DropCounter
from protocol.wire import frames

MAX_RECORDS: Final = 10_000
"""How many records wait here, and how many messages in the socket. Further ones are dropped and counted."""
DELAY_S: Final = 0.02
RECORDS_PER_MESSAGE: Final = 256
BATCH_WINDOW_S: Final = 0.01


class LogSender:
    """Keeps each record for a moment: a message per line would wake three threads and another process."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        """Send through ``socket``, a PUSH that its owner connects and closes."""
        self._socket = socket
        self._socket.linger = 200
        self._socket.sndhwm = MAX_RECORDS
        self._records: list[bytes] = []
        self._timer: Any = None
        logs.set_sink(DropCounter(self._keep))

    def _keep(self, record: bytes) -> bool:
        if len(self._records) >= MAX_RECORDS:
            return False
        self._records.append(record)
        if self._timer is None:
            self._send_soon()
        return True

    def _send_soon(self) -> None:
        # A new timer each time: a one-shot timer of libev fires at once when it is started again.
        self._timer = gevent.get_hub().loop.timer(DELAY_S)
        self._timer.start(self._send, update=True)

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None
        self._send_some()
        if self._records:
            self._send_soon()

    def _send_some(self) -> bool:
        batch = self._records[:RECORDS_PER_MESSAGE]
        if not batch or not frames.send(self._socket, b"\n".join(batch)):
            return False
        del self._records[:RECORDS_PER_MESSAGE]
        return True

    def close(self) -> None:
        """Send the waiting records, as many as the socket takes."""
        logs.set_sink(None)
        while self._send_some():
            pass
        if self._timer is not None:
            self._timer.close()


class RequestLogBuffer:
    """Delays lines of :func:`protocol.runtime.logs.log_batched` for a moment, from its construction until :meth:`close`."""

    def __init__(self) -> None:
        """Begin to delay lines."""
        self._loop = gevent.get_hub().loop
        self._timer: Any = None
        self._window_end = 0.0
        """End of the window after the last write, by the loop's clock."""
        logs.set_batching(self._schedule)

    def _schedule(self, write: Callable[[], None]) -> None:
        if self._loop.now() >= self._window_end:
            self._write(write)
            return
        self._stop()
        self._timer = self._loop.timer(BATCH_WINDOW_S)
        self._timer.start(self._write, write)

    def _write(self, write: Callable[[], None]) -> None:
        self._window_end = self._loop.now() + BATCH_WINDOW_S
        write()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def close(self) -> None:
        """Write the waiting lines, and delay no more."""
        self._stop()
        logs.set_batching(None)
