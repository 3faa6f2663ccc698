"""One request's life on the bus: its attempts, where they run, how they end. Lives in the hub's callbacks.

The blocking side, for the dialects, is in ``answers.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from gateway.attempts import Retry, after
from gateway.bell import Bell
from gateway.hangup import LEFT
from gateway.inbox import Inbox
from gateway.leases import Lease
from gateway.state import REFUSALS, State
from protocol import logs
from protocol.events import Event, Outcome
from protocol.failures import Code, Failure, LemonbusError

_STOP_THE_ENGINE = frozenset({Code.LOST, Code.CLIENT_TOO_SLOW, Code.CANCELLED, Code.SUPERVISOR_LOST, Code.TIMEOUT})
"""Ends that are ours: the engine does not know of them yet."""


class Question(msgspec.Struct, frozen=True):
    """An inference request as a dialect hands it to the house.

    ``body`` is an OpenAI request of ``endpoint`` (``protocol.work.Ask`` names them), with ``model`` in it as
    the client wrote it.  ``weight``: slots it uses; 0 for reads.  ``label``: the request id.
    """

    endpoint: str
    model: str
    body: bytes
    label: str
    stream: bool = False
    weight: int = 1
    query: str = ""


class Desk(Protocol):
    """What an exchange needs of the house."""

    inbox_bytes: int

    def ask(self, exchange: Exchange, suspect: bool) -> None:
        """Send the attempt; raises ``LemonbusError`` if that is impossible now."""

    def cancel(self, exchange: Exchange, reason: str) -> None:
        """Tell the house that nobody wants the present attempt any more."""

    def forget(self, exchange: Exchange) -> None:
        """Deliver nothing to it any more."""

    def may_retry(self) -> bool:
        """Return whether somebody is there to ask again."""


class Exchange:
    """A question and what came of it."""

    __slots__ = (
        "_desk",
        "_returns",
        "_suspect",
        "admitted",
        "attempt",
        "bell",
        "cut",
        "failure",
        "inbox",
        "lease",
        "model",
        "number",
        "question",
        "spool",
        "worker",
    )

    def __init__(self, desk: Desk, question: Question, number: int) -> None:
        """Prepare; nothing is sent before :meth:`begin`."""
        self._desk = desk
        self.question = question
        self.number = number
        self.attempt = 1
        self._returns = 0
        self._suspect = False
        self.admitted = False
        """Whether the supervisor was ever asked."""
        self.worker = ""
        """The worker the present attempt was granted to; empty while it waits."""
        self.model = question.model
        """What the client called it; after the grant: the registered name."""
        self.lease: Lease | None = None
        """What the present attempt runs under, if anything."""
        self.spool = ""
        self.inbox = Inbox(1, desk.inbox_bytes)
        self.failure: Failure | None = None
        self.bell = Bell()
        self.cut: Callable[[], None] | None = None
        """Breaks the client's connection: the only way to reach a greenlet that is stuck in a write."""

    @property
    def outcome(self) -> Outcome | None:
        """What it cost, once it really ended."""
        return self.inbox.outcome

    @property
    def over(self) -> bool:
        """Whether nothing more will arrive."""
        return self.failure is not None or self.inbox.outcome is not None

    def begin(self) -> None:
        """Send the first attempt."""
        self._desk.ask(self, suspect=False)

    def granted(self, worker: str, model: str, attempt: int) -> None:
        """Remember where the present attempt runs."""
        if attempt == self.attempt:
            self.worker, self.model = worker, model

    def returned(self) -> None:
        """The worker could not be reached: it runs nowhere yet."""
        self._leave_lease()
        self.worker, self.model = "", self.question.model

    def refused(self, failure: Failure, attempt: int) -> None:
        """End here: the supervisor will not have it."""
        if attempt == self.attempt:
            self.fail(failure)

    def take_event(self, event: Event, worker: str) -> None:
        """Put an event of ``worker`` where it belongs; the caller rings when its batch is through."""
        if event.attempt == self.attempt:
            self.worker = worker
        failure = self.inbox.put(event)
        if failure is not None:
            self._end(failure)
        elif self.inbox.outcome is not None:
            self.model = self.inbox.outcome.model or self.model
            self._leave_lease()
            self._desk.forget(self)

    def nudge(self) -> None:
        """Wake the one that waits, if there is something for it (in the hub)."""
        if not self.inbox.empty or self.over:
            self.bell.ring()

    def fail(self, failure: Failure) -> None:
        """End the present attempt with a failure, and tell the one that waits."""
        self._end(failure)
        self.bell.ring()

    def _end(self, failure: Failure) -> None:
        if self.over:
            return
        if failure.code in _STOP_THE_ENGINE:
            self._desk.cancel(self, failure.code)
        self._leave_lease()
        decision = after(failure.code, self.inbox.taken, self.attempt, self._returns)
        if isinstance(decision, Retry) and self._desk.may_retry():
            self.attempt += 1
            self._returns += failure.code is Code.RETURNED
            self._suspect = self._suspect or decision.suspect
            self.worker = ""
            self.inbox = Inbox(self.attempt, self._desk.inbox_bytes)
            try:
                self._desk.ask(self, suspect=self._suspect)
            except LemonbusError as problem:
                failure = problem.failure
            else:
                why = {"code": failure.code.value, "reason": failure.message, "suspect": decision.suspect}
                say = logs.get().debug if failure.code is Code.RETURNED else logs.get().warning
                say("asked again", request_id=self.question.label, model=self.model, **why)
                return
        if failure.code is Code.RETURNED and not self._desk.may_retry():
            failure = REFUSALS[State.LOST]
        self.failure = msgspec.structs.replace(failure, model=failure.model or self.model)
        self._desk.forget(self)
        if failure.code == Code.CLIENT_TOO_SLOW and self.cut is not None:
            self.cut()

    def _leave_lease(self) -> None:
        if self.lease is not None:
            self.lease.busy -= self.question.weight
            self.lease = None

    def abandon(self, reason: Code) -> None:
        """Leave it, whatever state it is in: stops the engine if it still works on it."""
        if not self.over:
            self._desk.cancel(self, reason)
            self._leave_lease()
            self.failure = Failure(reason, LEFT, model=self.model)
        self._desk.forget(self)
