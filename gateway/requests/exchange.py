"""One inference request on the bus: its attempts, where they run, how they end. Only callbacks in the hub change it.

``answer_stream.py`` is the blocking side, for the API families. The words for an end:

* fail (or be *refused*, by the supervisor): an attempt has failed; it is repeated, or its failure is the answer.
* withdraw: the key no longer allows the request; what has not been written yet is discarded.
* abandon: the client has left, or its answer has been read to the end; nothing is repeated.
* cancel, forget, release (in the session): tell the supervisor that an attempt is not wanted; deliver no more events of
  the request; forget it and remove its spool file.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from gateway.http.client_disconnect import CLIENT_LEFT, CUT_DELAY_S
from gateway.http.request_context import never_withdrawn
from gateway.internal_errors import INTERNAL_FAILURE
from gateway.requests.admission_states import ADMISSION_FAILURES, AdmissionState
from gateway.requests.inbox import Inbox
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.retry import Retry, decide_retry
from gateway.waker import GreenletWaker
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.caller import Caller, RateLimits
from protocol.messages.events import Event, Outcome
from protocol.messages.work import BYTE_STREAMS, ENGINE_STATE_ENDPOINTS, QueueStatus
from protocol.runtime import logs

_CANCEL_IN_ENGINE = frozenset(
    {
        *(Code.LOST, Code.CLIENT_TOO_SLOW, Code.CANCELLED, Code.OPERATOR_CANCELLED, Code.SUPERVISOR_LOST),
        *(Code.TIMEOUT, Code.INTERNAL),
    }
)
"""Failures that the engine does not know of yet, because it did not report them."""

_BYTES_FACTOR: Final = 16
"""How many times as much of an answer in bytes may arrive before its worker knows that the engine is to wait."""


class ExchangeDispatcher(Protocol):
    """What an exchange needs from the session."""

    inbox_bytes: int

    def submit(self, exchange: RequestExchange) -> None:
        """Send the present attempt; raises ``LemonbusError`` if that is impossible now."""

    def cancel(self, exchange: RequestExchange, reason: str) -> None:
        """Cancel the present attempt where it runs."""

    def hold(self, exchange: RequestExchange, on: bool) -> None:
        """Let the engine of the present attempt wait, or go on."""

    def report_lost(self, exchange: RequestExchange) -> None:
        """Report that its worker is gone with the answer, and how much of a stream its client has got."""

    def answered(self, exchange: RequestExchange, worker: str, outcome: Outcome) -> None:
        """Keep the end of its answer, in case the worker cannot report it."""

    def forget(self, exchange: RequestExchange) -> None:
        """Deliver no more events to it."""

    def with_node(self, failure: Failure, worker: str) -> Failure:
        """Name the worker's node, if it is not this one, in the failure of an answer that was damaged on its way."""

    def may_retry(self) -> bool:
        """Return whether there is, or will be, a supervisor for another attempt."""


class RequestExchange:
    """An inference request and its result."""

    __slots__ = (
        "_dispatcher",
        "_held",
        "_limits_lost",
        "_returns",
        "attempt",
        "batch",
        "caller",
        "cut",
        "dialect",
        "download_refusal",
        "failure",
        "granted_model",
        "inbox",
        "model",
        "number",
        "queue_status",
        "rate_limits",
        "request",
        "reservation",
        "retry_reason",
        "since",
        "spool",
        "suspect",
        "waker",
        "withdrawal",
        "worker",
    )

    def __init__(
        self,
        dispatcher: ExchangeDispatcher,
        request: InferenceRequest,
        number: int,
        caller: Caller | None = None,
        download_refusal: str = "",
        reservation: int = 0,
        withdrawal: Callable[[str], Failure | None] = never_withdrawn,
        dialect: str = "",
        batch: bool = False,
    ) -> None:
        """Prepare; nothing is sent before :meth:`begin`.

        ``withdrawal``: see :class:`~gateway.http.request_context.RequestContext`. ``dialect``, ``batch``: as in ``SubmitRequest``.
        """
        self._dispatcher = dispatcher
        self.request = request
        self.caller = caller
        self.download_refusal = download_refusal
        self.reservation = reservation
        self.withdrawal = withdrawal
        self.dialect, self.batch = dialect, batch
        self.queue_status: QueueStatus | None = None
        """Its position in the queue when it came; None if it was granted at once."""
        self.rate_limits: RateLimits | None = None
        """The remaining limits of the caller's key, counting this request; None if it has no limits."""
        self.number = number
        self.attempt, self._returns = 1, 0
        self._limits_lost = self._held = False
        self.suspect = False
        """Whether the request was in an engine that died, so that it must run alone."""
        self.since = time.monotonic()
        """When it arrived. A supervisor that takes over keeps the order of all gateways' requests by this."""
        self.retry_reason = ""
        """Why the attempt before the present one ended; empty for the first."""
        self.worker = ""
        """The worker of the present attempt; empty while it waits."""
        self.model = request.model
        """The client's name for the model; after the grant, its registered name."""
        self.granted_model = ""
        """The registered name of the model of the present attempt; empty while it waits."""
        self.spool = ""
        self.inbox = self._new_inbox()
        self.failure: Failure | None = None
        self.waker = GreenletWaker()
        self.cut: Callable[[float], None] | None = None
        """Breaks the client's connection after this many seconds: the only way to end a blocked write."""

    def _new_inbox(self) -> Inbox:
        most, in_bytes = self._dispatcher.inbox_bytes, self.request.endpoint in BYTE_STREAMS
        # A player reads sound as slowly as it plays it, so its engine waits: half of the bytes here, half in a write.
        return Inbox(self.attempt, _BYTES_FACTOR * most, most // 2) if in_bytes else Inbox(self.attempt, most)

    def _hold(self, on: bool) -> None:
        if on != self._held:
            self._held = on
            self._dispatcher.hold(self, on)

    def take(self) -> bytes:
        """Return what waits, as :meth:`Inbox.take`; an engine that waits for this goes on."""
        self._hold(False)
        return self.inbox.take()

    @property
    def label(self) -> str:
        """The request id."""
        return self.request.label

    @property
    def outcome(self) -> Outcome | None:
        """What the generation cost, once it has ended."""
        return self.inbox.outcome

    @property
    def warning(self) -> str:
        """A part of the request that has no effect, for a header; empty: none is known."""
        return self.inbox.warning

    @property
    def over(self) -> bool:
        """Whether no more events will arrive."""
        return self.failure is not None or self.inbox.outcome is not None

    def begin(self) -> None:
        """Send the first attempt."""
        self._dispatcher.submit(self)

    def granted(self, worker: str, model: str, attempt: int) -> None:
        """Record where the present attempt runs."""
        if attempt == self.attempt:
            self.worker, self.model, self.granted_model = worker, model, model

    def refused(self, failure: Failure, attempt: int) -> None:
        """Fail: the supervisor refused the attempt, or an operator cancelled the request, whatever attempt runs now."""
        if attempt == self.attempt or failure.code is Code.OPERATOR_CANCELLED:
            self.fail(failure)

    def take_event(self, event: Event, worker: str) -> None:
        """Take an event of ``worker``. The caller calls :meth:`wake_if_ready` after the whole batch."""
        if event.attempt == self.attempt:
            self.worker = worker
        failure = self.inbox.put(event)
        self._hold(self.inbox.crowded)
        if failure is not None:
            self._end(self._dispatcher.with_node(failure, worker))
        elif self.inbox.outcome is not None:
            self._dispatcher.answered(self, worker, self.inbox.outcome)
            self.model = self.inbox.outcome.model or self.model
            if not self.rate_limits_due:  # otherwise this still gets a message; its end is the caller's ``release``
                self._dispatcher.forget(self)

    def wake_if_ready(self) -> None:
        """Wake the waiting greenlet if there is something for it (in the hub)."""
        if not self.inbox.empty or self.over:
            self.waker.wake()

    @property
    def rate_limits_due(self) -> bool:
        """Whether the supervisor has still to report the remaining limits of the caller's key."""
        if self.caller is None or not self.caller.limited:
            return False
        if self._limits_lost or self.request.endpoint in ENGINE_STATE_ENDPOINTS:  # limits do not apply to those
            return False
        return self.rate_limits is None and self.failure is None

    def take_rate_limits(self, limits: RateLimits) -> None:
        """Note the remaining limits of the caller's key (in the hub)."""
        self.rate_limits = limits
        self.waker.wake()

    def supervisor_ended(self) -> None:
        """Stop waiting for what the supervisor has not said about a request that a worker has (in the hub)."""
        if self.worker and self.rate_limits_due:
            self._limits_lost = True
            if self.over:
                self._dispatcher.forget(self)
            self.waker.wake()

    def fail(self, failure: Failure) -> None:
        """End the present attempt with a failure, and wake the waiting greenlet.

        After an exception, the request is answered with 500, so that it never waits forever. The caller logs the
        exception.
        """
        try:
            self._end(failure)
        except Exception:
            self.failure = msgspec.structs.replace(INTERNAL_FAILURE, model=self.model)
            raise
        finally:
            self.waker.wake()

    def _end(self, failure: Failure) -> None:
        if self.over:
            return
        self._hold(False)
        if failure.code in _CANCEL_IN_ENGINE:
            self._dispatcher.cancel(self, failure.code)
        decision = decide_retry(failure, self.inbox.taken, self.attempt, self._returns)
        if isinstance(decision, Retry) and self._dispatcher.may_retry():
            self.attempt += 1
            self._returns += failure.code is Code.RETURNED
            self.suspect = self.suspect or decision.suspect
            self.worker = self.granted_model = ""
            self.retry_reason = failure.code.value
            self.inbox = self._new_inbox()
            try:
                self._dispatcher.submit(self)
            except LemonbusError as problem:
                failure = problem.failure
            else:
                fields = {"code": failure.code.value, "reason": failure.message, "suspect": decision.suspect}
                log = logs.get_logger().debug if failure.code is Code.RETURNED else logs.get_logger().warning
                log("request tried again", request_id=self.request.label, model=self.model, **fields)
                return
        if failure.code is Code.RETURNED and not self._dispatcher.may_retry():
            failure = ADMISSION_FAILURES[AdmissionState.LOST]
        self.failure = msgspec.structs.replace(failure, model=failure.model or self.model)
        if failure.code in (Code.WORKER_GONE, Code.NODE_LOST):
            self._dispatcher.report_lost(self)
        self._dispatcher.forget(self)
        if failure.code == Code.CLIENT_TOO_SLOW and self.cut is not None:
            self.cut(0.0)

    def withdraw(self) -> None:
        """End the request if it may not go on: what has arrived but was not written is not written any more (in the hub)."""
        failure = None if self.over else self.withdrawal(self.granted_model)
        if failure is not None:
            self._dispatcher.cancel(self, failure.code)
            self.inbox.discard()
            self.fail(failure)
            if self.cut is not None:
                self.cut(CUT_DELAY_S)

    def abandon(self, reason: Code) -> None:
        """Give the request up in any state, and cancel it if the engine still works on it."""
        self._hold(False)
        if not self.over:
            self._dispatcher.cancel(self, reason)
            self.failure = Failure(reason, CLIENT_LEFT, model=self.model)
        elif self.request.more:
            self._dispatcher.cancel(self, reason)  # the next piece will not come
        self._dispatcher.forget(self)
