"""The workers that this gateway is subscribed to, and when a worker that has ended is settled.

Events that a worker sent before its end count. So it is settled when its connection has ended and was read to the end,
or after a short wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, Protocol

import gevent

from protocol.failures import Code, Failure
from protocol.messages.peers import WorkerGone
from protocol.models.nodes import HEAD

DISCONNECT_TIMEOUT_S: Final = 0.1
WORKER_ENDED: Final = Failure(Code.WORKER_GONE, "the worker process ended")
_REMOTE: Final = "tcp:"


def _lost_with(node: str) -> Failure:
    text = f"the worker is gone, because node {node} was lost; repeat the request: it may run on another node"
    return Failure(Code.NODE_LOST, text)


class EventSocket(Protocol):
    """The parts of the event socket that this uses."""

    def connect(self, endpoint: str) -> None:
        """Subscribe to the events of the worker at ``endpoint``."""

    def disconnect(self, endpoint: str) -> None:
        """Unsubscribe from a worker's events."""

    def ended(self, endpoint: str) -> bool:
        """Return whether the connection to ``endpoint`` has ended."""

    def drain_events(self) -> None:
        """Deliver the events that have arrived."""


class WorkerSubscriptions:
    """The workers by name. Used in the hub only."""

    def __init__(
        self, events: EventSocket, settle: Callable[[str, Failure], None], cut_off: Callable[[str, str], None]
    ) -> None:
        """Call ``settle(worker, failure)`` when no more events of a worker will arrive.

        ``cut_off(worker, node)`` is called when the connection to a worker on another node has ended: the worker may go on
        and be reached again, but it cancels what it did for this gateway.
        """
        self._events = events
        self._settle, self._cut_off = settle, cut_off
        self._endpoints: dict[str, str] = {}
        self._nodes: dict[str, str] = {}
        """The node of each worker that is not on the head."""
        self._ending: dict[str, WorkerGone] = {}
        self._supervisor_lost = False
        """If set, the end of a connection means the end of its worker."""

    def up(self, worker: str, endpoint: str, node: str = "") -> None:
        """Subscribe to a worker. ``node``: where it runs; empty: on the head."""
        self._endpoints[worker] = endpoint
        if node:
            self._nodes[worker] = node
        self._events.connect(endpoint)

    def gone(self, message: WorkerGone) -> None:
        """Settle a worker as soon as none of its events can arrive any more."""
        endpoint = self._endpoints.get(message.worker)
        if endpoint is None or self._events.ended(endpoint):
            self._finish(message)
            return
        self._ending[message.worker] = message
        timer = gevent.get_hub().loop.timer(DISCONNECT_TIMEOUT_S)

        def waited() -> None:
            timer.close()
            if self._ending.pop(message.worker, None) is not None:
                self._finish(message)

        timer.start(waited)

    def recovered(self, living: Container[str], nodes: Container[str] = ()) -> None:
        """Settle the workers that are not ``living``: they ended while no supervisor could say so.

        ``nodes``: those besides the head that are in the server. What ran on another one has ended with it.
        """
        for worker in list(self._endpoints):
            if worker not in living:
                node = self.node_of(worker)
                self.gone(WorkerGone(worker, WORKER_ENDED if node in nodes or not node else _lost_with(node)))

    def knows(self, worker: str) -> bool:
        """Return whether the gateway is subscribed to a worker that is not settled."""
        return worker in self._endpoints

    def node_of(self, worker: str) -> str:
        """Return the node of a worker that is not settled; empty if that is the head."""
        return self._nodes.get(worker, "")

    def disconnected(self, endpoint: str) -> None:
        """Settle the worker at ``endpoint`` if it is known to be gone: its connection has ended and was read to the end."""
        for worker, known in list(self._endpoints.items()):
            if known != endpoint:
                continue
            message = self._ending.pop(worker, None)
            if message is None and self._supervisor_lost:
                message = WorkerGone(worker, WORKER_ENDED)
            if message is not None:
                self._finish(message)
            elif endpoint.startswith(_REMOTE):
                self._cut_off(worker, self.node_of(worker) or HEAD)

    def supervisor_lost(self) -> None:
        """Take the end of a connection for the end of its worker, also for past ones: no message will say it."""
        self._supervisor_lost = True
        for endpoint in list(self._endpoints.values()):
            if self._events.ended(endpoint):
                self.disconnected(endpoint)

    def _finish(self, message: WorkerGone) -> None:
        self._events.drain_events()
        endpoint = self._endpoints.pop(message.worker, None)
        self._nodes.pop(message.worker, None)
        if endpoint is not None:
            self._events.disconnect(endpoint)
        self._settle(message.worker, message.failure)
