"""Calls to the supervisor other than inference: one report, or messages until the client leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, Self, TypeVar

import gevent
import msgspec

from gateway.http.client_disconnect import CLIENT_LEFT, CUT_DELAY_S, HangUpWatch
from gateway.http.request_context import request_context
from gateway.waker import GreenletWaker
from protocol.failures import CLIENT_LEFT_CODES, Code, Failure
from protocol.messages.caller import RateLimits
from protocol.messages.calls import REPETITIONS, AbandonCall, CallResult, Progress
from protocol.messages.log_stream import FollowLogs, LogBatch, LogSnapshot
from protocol.messages.work import QueueStatus
from protocol.runtime import logs
from protocol.wire.envelope import pack_payload, unpack_payload

R = TypeVar("R")

BuildMessage = Callable[[int], msgspec.Struct]
"""Makes the call's message with the number that the session gives it: ``lambda n: LoadModel(n, "name")``."""

OUTCOME_UNKNOWN: Final = Failure(
    Code.OUTCOME_UNKNOWN,
    "the server's supervisor was replaced meanwhile: it is unknown whether this was done; check before you repeat it",
)
MAX_WAITING_MESSAGES = 1000
"""How many messages may wait for a follower that does not read."""


class CallSession(Protocol):
    """What a call needs from the session."""

    def send_end(self, message: AbandonCall) -> None:
        """Tell the supervisor that the client no longer waits; does nothing if the supervisor is gone."""

    def end_call(self, number: int) -> None:
        """Deliver no more messages to this call."""


class SupervisorCall:
    """The messages that answer one call, by its number.

    A context manager; leaving it sends ``AbandonCall`` if the call still runs.

    Iterating yields :class:`Progress`, :class:`LogBatch`, or :class:`CallResult`, whose report is then in
    :attr:`report` (still packed). The answer ends the iteration, unless the call was made ``endless`` (log followers).
    Raises ``LemonbusError`` if the supervisor refuses or is lost, or if the client hangs up.
    """

    def __init__(
        self,
        session: CallSession,
        number: int,
        env: dict[str, Any],
        message: msgspec.Struct,
        payload: bytes = b"",
        *,
        endless: bool = False,
    ) -> None:
        """Collect the answers to ``message``, which is kept to be sent again to a supervisor that takes over."""
        self.number = number
        self.message = message
        self.payload = payload
        self.repetition = REPETITIONS[type(message)]
        self.exposed = False
        """Whether a supervisor may have acted on the message."""
        self._repeated = False
        context = request_context(env)
        self.label = context.label
        """The request id."""
        self._withdrawal = context.withdrawal
        self.report = b""
        """The payload of the answer, once it has arrived: ``protocol.wire.envelope.unpack_payload(report, cls)``."""
        self._session = session
        self.endless = endless
        """Whether the call goes on after its answer."""
        self.rate_limits: RateLimits | None = None
        """The remaining limits of the caller's key, if the supervisor has sent them (``ReserveRequest``)."""
        self.queue_status: QueueStatus | None = None
        """None: a call never waits in a queue."""
        self.warning = ""
        """See :class:`~gateway.http.request_context.Exchange`; empty, because a call has no such part."""
        self._arrived: deque[CallResult | Progress | LogBatch] = deque()
        self._failure: Failure | None = None
        self.answered = False
        self._open = True
        self._waker = GreenletWaker()
        self.on_failure: Callable[[], None] | None = None
        """Called once, in the hub, when the call fails: the greenlet may be blocked somewhere other than in :meth:`next`."""
        self._watch = HangUpWatch(env, self._hung_up)

    def deliver(self, message: CallResult | Progress | LogBatch, payload: bytes) -> None:
        """Take a message (in the hub)."""
        if isinstance(message, CallResult):
            if self.answered:
                self._take_second_answer(payload)
                return
            self.answered = True
            self.report = payload
        elif len(self._arrived) >= MAX_WAITING_MESSAGES:
            self.fail(Failure(Code.CLIENT_TOO_SLOW, "the client does not read fast enough"))
            return
        self._arrived.append(message)
        self._waker.wake()

    def _take_second_answer(self, payload: bytes) -> None:
        """Take the second supervisor's answer to a call that goes on: all entries of a new log are new to a follower."""
        if isinstance(self.message, FollowLogs):
            snapshot: LogSnapshot = unpack_payload(payload, LogSnapshot)
            if snapshot.entries:
                self.deliver(LogBatch(self.number, snapshot.entries, snapshot.dropped), b"")

    @property
    def repeatable(self) -> bool:
        """Return whether a supervisor that takes over may get the call: repeating it is harmless, or no supervisor has had it."""
        return self.repetition.repeated or not self.exposed

    def repeat(self) -> msgspec.Struct:
        """Return the message for a supervisor that takes over.

        It is unchanged if no supervisor can have acted on it.
        """
        if not self.exposed:
            return self.message
        self._repeated = True
        change = self.repetition.change
        return self.message if change is None else change(self.message)

    def refuse(self, failure: Failure) -> None:
        """Take the supervisor's refusal (in the hub). It fails the call, unless it answers a repetition."""
        if self._repeated:
            if not self.answered and failure.code in self.repetition.done:
                self.deliver(CallResult(self.number), pack_payload(self.repetition.done[failure.code](self.message)))
                return
            if self.answered and failure.code in self.repetition.survived:
                fields = {"call": type(self.message).__name__, "reason": failure.loggable_message}
                logs.get_logger().warning("not taken over by the new supervisor", request_id=self.label, **fields)
                return
        self.fail(failure)

    def process_replaced(self) -> None:
        """Answer the call (in the hub) if its answer is that a supervisor has taken over that this process cannot ask."""
        if self.exposed and self.repetition.replaced is not None:
            self.deliver(CallResult(self.number), pack_payload(self.repetition.replaced()))

    def fail(self, failure: Failure) -> None:
        """Fail the call (in the hub)."""
        try:
            if self._failure is None:
                self._failure = failure
                if self.on_failure is not None:
                    self.on_failure()
        finally:
            self._waker.wake()

    def withdraw(self) -> None:
        """End the call if it may not go on (in the hub)."""
        failure = None if self._failure is not None else self._withdrawal("")
        if failure is not None:
            if not (self.endless or self.answered):
                self._session.send_end(AbandonCall(self.number))
            self.fail(failure)
            self._watch.cut(CUT_DELAY_S)

    def _hung_up(self) -> None:
        self.fail(Failure(Code.CANCELLED, CLIENT_LEFT))

    def next(self, seconds: float | None = None) -> CallResult | Progress | LogBatch | None:
        """Return the next message, or ``None`` after ``seconds`` without one."""
        while True:
            if self._arrived:
                return self._arrived.popleft()
            if self._failure is not None:
                raise self._failure.raised()
            if not self._waker.wait(seconds):
                return None

    def report_within(self, cls: type[R], seconds: float) -> R | None:
        """Return the report of a call that has nothing else; ``None`` after ``seconds`` without a message."""
        while (message := self.next(seconds)) is not None:
            if isinstance(message, CallResult):
                report: R = unpack_payload(self.report, cls)
                return report
        return None

    def __iter__(self) -> Iterator[CallResult | Progress | LogBatch]:
        while True:
            message = self.next()
            if message is None:
                return
            yield message
            if isinstance(message, CallResult) and not self.endless:
                return

    def stop_watching(self) -> None:
        """Stop watching the connection: the caller reads it from now on (WebSocket), and notices a hang-up itself."""
        self._watch.close()

    def stop(self) -> None:
        """End the iteration from another greenlet, as if the client had hung up."""
        gevent.get_hub().loop.run_callback(self._hung_up)

    def close(self, *, sent: bool = True) -> None:
        """End the call. Idempotent. ``sent``: whether the supervisor may know about the call."""
        if not self._open:
            return
        self._open = False
        self._watch.close()
        self._session.end_call(self.number)
        if sent and (self.endless or not (self.answered or self._failed_at_supervisor())):
            self._session.send_end(AbandonCall(self.number))

    def _failed_at_supervisor(self) -> bool:
        return self._failure is not None and self._failure.code not in CLIENT_LEFT_CODES

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
