"""The messages of the bus: each goes to its handler, and then the scheduler decides.

An exception in a handler fails that message alone. While this supervisor takes over from another one, or hands over to
one, its :class:`Transition` gets all messages, and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.metrics import GetMetrics, MetricsCollected, RequestsObserved
from protocol.messages.peers import Hello, Pong
from protocol.messages.work import (
    AttemptAbandoned,
    AttemptEnded,
    AttemptProgress,
    AttemptsEnded,
    Cancel,
    Refused,
    SubmitRequest,
)
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.internal_errors import InternalErrors
from supervisor.runtime.decisions import Decisions
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.scheduler import Scheduler

_SETTLED_MESSAGES: Final = frozenset(
    {SubmitRequest, Cancel, AttemptEnded, AttemptsEnded, Pong, AttemptAbandoned, AttemptProgress}
    | {RequestsObserved, GetMetrics, MetricsCollected}
)
"""After these, the scheduler need not look at all models again, unless something waits or moves: see
:meth:`~supervisor.runtime.decisions.Decisions.reconcile_unless_settled`."""

log = logs.get_logger()


class Transition(Protocol):
    """Gets all messages and ends of workers instead of the handlers.

    :class:`supervisor.recovery.takeover.Takeover` takes over, :mod:`supervisor.lifecycle.succession` hands over.
    """

    def received(self, peer: str, message: Any, payload: bytes) -> None:
        """Take a message."""

    def worker_ended(self, worker: str) -> None:
        """Note that a worker's process has ended."""

    def when_over(self, callback: Callable[[], None]) -> None:
        """Call back when everything is taken over; never, if this supervisor hands over."""


class Messages:
    """Where messages go."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        scheduler: Scheduler,
        decisions: Decisions,
        errors: InternalErrors,
    ) -> None:
        """No message has a handler yet."""
        self._loop, self._bus, self._peers = loop, bus, peers
        self._scheduler, self._decisions, self._errors = scheduler, decisions, errors
        self._handlers: dict[type, Handler] = {}
        self.transition: Transition | None = None
        """What gets the messages for now; None while this supervisor serves."""

    def add(self, handlers: Mapping[type, Handler]) -> None:
        """Send messages of these types to these handlers."""
        self._handlers.update(handlers)

    def begin(self, transition: Transition) -> None:
        """Leave all messages to ``transition``, and decide nothing."""
        self.transition, self._decisions.suspended = transition, True

    def end_transition(self) -> None:
        """Handle messages from now on. The caller lets the scheduler decide as soon as it knows everything."""
        self.transition, self._decisions.suspended = None, False

    def when_serving(self, callback: Callable[[], None]) -> None:
        """Call back as soon as everything is taken over from an earlier supervisor; now, if there is none."""
        if self.transition is None:
            callback()
        else:
            self.transition.when_over(callback)

    def received(self, peer: str, message: Any, payload: bytes) -> None:
        """Handle a message, or leave it to the transition."""
        if self.transition is not None:
            self.transition.received(peer, message, payload)
            return
        self.handle(peer, message, payload)
        if type(message) in _SETTLED_MESSAGES:
            self._decisions.reconcile_unless_settled()
        else:
            self._decisions.reconcile()

    def handle(self, peer: str, message: Any, payload: bytes) -> None:
        """Handle a message. The next :meth:`Decisions.reconcile` decides what follows from it."""
        known = self._peers.message_received(peer, self._loop.now())
        handler = self._handlers.get(type(message))
        if handler is None or not (known or isinstance(message, Hello)):
            log.warning("unexpected message", peer=peer, message=type(message).__name__)
            return
        try:
            handler(peer, message, payload)
        except Exception as problem:  # noqa: BLE001 - the message has failed, not the supervisor
            self._handler_failed(peer, message, problem)

    def _handler_failed(self, peer: str, message: Any, problem: Exception) -> None:
        """Answer a gateway's message whose handler raised, and remove a failed request from the scheduler."""
        context = {"message": type(message).__name__, "peer": peer}
        label = getattr(message, "label", "")
        failure = self._errors.failure_of(problem, **context, **({"request_id": label} if label else {}))
        known = self._peers.get(peer)
        if known is None or known.role != "gateway":
            return
        attempt = 0
        if isinstance(message, SubmitRequest):
            attempt = message.attempt
            try:
                self._scheduler.request_cancelled(RequestKey(peer, message.number, attempt), Code.INTERNAL)
            except Exception as other:  # noqa: BLE001 - counted; the client is answered anyway
                self._errors.failure_of(other, **context)
        self._bus.send(peer, Refused(getattr(message, "number", 0), attempt, failure))
