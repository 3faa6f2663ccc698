"""Which workers this gateway reads, and when one that is gone can be settled.

What a worker still sent counts: it is settled only when its connection has ended, behind which nothing more
can be read, or after a short wait for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import gevent

from protocol.failures import Code, Failure
from protocol.messages.peers import WorkerGone

DISCONNECT_TIMEOUT_S: Final = 0.1


class EventSocket(Protocol):
    """The event socket, as far as this uses it."""

    def connect(self, endpoint: str) -> None:
        """Read this worker's events."""

    def disconnect(self, worker: str, endpoint: str) -> None:
        """Read them no more, and send it nothing."""

    def ended(self, endpoint: str) -> bool:
        """Return whether the connection to ``endpoint`` has ended."""

    def drain_events(self) -> None:
        """Deliver every event that is already here."""


class WorkerSubscriptions:
    """The workers by name. Used in the hub only."""

    def __init__(self, events: EventSocket, settle: Callable[[str, Failure], None]) -> None:
        """Call ``settle(worker, failure)`` when nothing more will come from a worker."""
        self._events = events
        self._settle = settle
        self._endpoints: dict[str, str] = {}
        self._going: dict[str, WorkerGone] = {}
        self.orphaned = False
        """Nobody tells us any more which workers are gone: the end of a connection has to do."""

    def up(self, worker: str, endpoint: str) -> None:
        """Begin to read a worker."""
        self._endpoints[worker] = endpoint
        self._events.connect(endpoint)

    def gone(self, message: WorkerGone) -> None:
        """Settle a worker as soon as nothing more can come from it."""
        if message.worker not in self._endpoints or self._events.ended(message.endpoint):
            self._finish(message)
            return
        self._going[message.worker] = message
        timer = gevent.get_hub().loop.timer(DISCONNECT_TIMEOUT_S)

        def waited() -> None:
            timer.close()
            if self._going.pop(message.worker, None) is not None:
                self._finish(message)

        timer.start(waited)

    def disconnected(self, endpoint: str) -> None:
        """Take note that the connection to ``endpoint`` ended, after everything from it was read."""
        for worker, its in list(self._endpoints.items()):
            if its != endpoint:
                continue
            message = self._going.pop(worker, None)
            if message is None and self.orphaned:
                message = WorkerGone(worker, endpoint, Failure(Code.WORKER_GONE, "the worker process ended"))
            if message is not None:
                self._finish(message)

    def _finish(self, message: WorkerGone) -> None:
        self._events.drain_events()
        self._endpoints.pop(message.worker, None)
        self._events.disconnect(message.worker, message.endpoint)
        self._settle(message.worker, message.failure)
