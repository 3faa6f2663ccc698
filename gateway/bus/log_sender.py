"""Sends the log records of this process to the supervisor, several in one message."""

from __future__ import annotations

from typing import Any, Final

import gevent
import zmq

from protocol.runtime import logs
from protocol.runtime.log_records import DropCounter
from protocol.wire import frames

MAX_RECORDS: Final = 10_000
"""How many records wait here, and how many messages in the socket. Further ones are dropped and counted."""
DELAY_S: Final = 0.02
RECORDS_PER_MESSAGE: Final = 256


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
