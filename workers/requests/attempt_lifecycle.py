"""Starts, stops and ends attempts, and passes on what the engine sends for them.

Output goes to the gateway through the outbox. The end of each attempt goes to the supervisor, which frees its slot.

Invariants:

* Exactly one `AttemptEnded` is sent for each attempt, while the supervisor lives. Attempts that run when the engine
  dies have none: `EngineDied`, or the end of this process, ends them all together.
* Nothing of an attempt is published after its end, or after it was cancelled.
* An exception of our own code fails only the attempt that it concerns, with ``internal_error``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.messages.work import AttemptEnded, Run
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from workers.engine.line_attribution import LineAttribution
from workers.requests.attempt import Attempt, AttemptPhase, end_delay, engine_request
from workers.requests.cancellation import Cancellations
from workers.requests.end_reports import EndReports
from workers.requests.interfaces import RequestBus, RequestEngine
from workers.requests.slot_probe import GrammarWatch, SlotProbe
from workers.stream.event_outbox import EventPublisher

DEATH_NOTICE_DELAY_S: Final = 1.0
"""A broken connection usually means a dying engine: the report of its exit, a moment later, says more."""
KEEPALIVE_INTERVAL_S: Final = 1.0
"""While an engine works without output, its gateway gets an `ALIVE` at most this often."""


class AttemptLifecycle:
    """Starts, stops and ends attempts. It is the :class:`~workers.requests.attempt.AttemptOwner` of all of them."""

    def __init__(
        self,
        loop: Loop,
        bus: RequestBus,
        context: ProcessContext,
        attempts: dict[RequestKey, Attempt],
        line_attribution: LineAttribution,
        on_empty: Callable[[], None],
    ) -> None:
        """Start no attempts yet.

        ``attempts``: the table of those that have not ended, which others only read.
        ``on_empty`` is called when the last one has ended, unless :meth:`fail_all` ended it.
        """
        self._loop, self._bus, self._context = loop, bus, context
        self._attempts, self._line_attribution = attempts, line_attribution
        self._on_empty = on_empty
        self._log = logs.get_logger()
        self._publisher = EventPublisher(loop, bus.publish, self._overflowed)
        self._outbox = self._publisher.outbox
        self._session: RequestEngine | None = None
        self._cancellations: Cancellations | None = None
        self._grammar_watch: GrammarWatch | None = None
        self.accepts = False
        """Whether attempts may start: the engine is ready, and the worker is not about to end it."""
        self.reports: Final = EndReports()
        self.last_use = 0.0
        """When the engine became ready, or an attempt last began or ended; 0: never. Reads do not count."""

    # The engine.

    def open(self, session: RequestEngine, log: logs.Logger) -> None:
        """Start attempts from now on: an engine is ready."""
        self._session, self._log = session, log
        self.reports.model = session.spec.name
        self._line_attribution.read_output = session.engine.read_output
        probe = SlotProbe(self._loop, session)
        self._cancellations = Cancellations(self._loop, self._bus, session, probe, self._attempts, self.end)
        self._grammar_watch = GrammarWatch(self._loop, session, probe, self._attempts)
        self.last_use = self._loop.now()
        self.accepts = True

    def close(self) -> None:
        """Start no more attempts; running ones go on."""
        self.accepts = False

    def fail_all(self, failure: Failure, causes: Sequence[RequestKey] = ()) -> list[AttemptEnded]:
        """End all attempts: the engine is dead, or is about to be. Return what the running ones have used.

        ``causes``: the attempts that it may have died of. If only one is possible, its failure says so.
        """
        self.accepts = False
        unfinished = []
        if self._cancellations is not None:
            self._cancellations.engine_died()
        if self._grammar_watch is not None:
            self._grammar_watch.stop()
        for attempt in list(self._attempts.values()):
            phase = attempt.phase
            stopping, by_request = phase is AttemptPhase.STOPPING, [attempt.key] == list(causes)
            tokens = attempt.tokens if stopping else attempt.answer.tokens_sent
            prompt = attempt.answer.prompt_tokens(
                attempt.stop_code if stopping else failure.code, by_request=by_request
            )
            if phase is AttemptPhase.WAITING:
                self._remove(attempt)
                self._bus.send(AttemptEnded(*attempt.key, code=Code.RETURNED))
                continue
            end = self.reports.make(attempt, failure.code, tokens=tokens, prompt_tokens=prompt)
            self._remove(attempt, end)
            unfinished.append(end)
            if phase is AttemptPhase.RUNNING:
                fields = {"request_id": attempt.run.label, "code": failure.code, "tokens": attempt.tokens}
                self._log.warning("request lost", **fields, by_request=by_request)
                self._outbox.failed(attempt.key, attempt.answer.lost(failure, by_request=by_request))
        self._publisher.flush()
        self._session = self._cancellations = self._grammar_watch = None
        self._line_attribution.read_output = lambda: None
        return unfinished

    # One attempt.

    def add(self, attempt: Attempt) -> None:
        """Take an attempt into the table; it waits for :meth:`start`."""
        self._attribute_lines(attempt, self._line_attribution.before_start)
        self._attempts[attempt.key] = attempt
        self._used(attempt, attempt.arrived_at)

    def _used(self, attempt: Attempt, at: float) -> None:
        if attempt.run.weight:
            self.last_use = at

    def return_to_supervisor(self, run: Run) -> None:
        """Return a request that crossed the engine's death, and whose gateway this worker cannot tell.

        Its grant ended with the engine. The supervisor refuses the attempt with ``returned``, and the gateway asks again.
        """
        self._bus.send(AttemptEnded(run.gateway, run.number, run.attempt, code=Code.RETURNED))

    def gateway_left(self, gateway: str) -> None:
        """Drop everything that is to be sent to a gateway that is gone."""
        self._outbox.gateway_left(gateway)

    def start(self, attempt: Attempt) -> None:
        """Send an attempt to the engine; if that is impossible, it fails."""
        self._outbox.opened(attempt.key)
        session = self._session
        if not self.accepts or session is None:
            failure = Failure(Code.RETURNED, "the worker takes no requests now", model=attempt.run.model)
            self.failed(attempt, failure, stopped=True)
            return
        try:
            request = engine_request(attempt.run, attempt.body, session.backend, self._context)
            attempt.start(request)
            if request.warning:
                self._log.warning(
                    "a part of the request has no effect", request_id=attempt.run.label, reason=request.warning
                )
                self._outbox.warned(attempt.key, request.warning)
            attempt.exchange = session.pool.send(request, attempt)
            session.monitor.wake()
            if request.grammar and self._grammar_watch is not None:
                self._grammar_watch.wake()
            self._bus.send_ends_if_due()
        except LemonbusError as problem:
            self.failed(attempt, problem.failure, stopped=True)
        except Exception as error:  # noqa: BLE001 - a programming error ends one request, not the worker
            self.crashed(attempt, error)

    def cancel(self, attempt: Attempt, code: str) -> None:
        """Stop an attempt whose result is no longer wanted, unless it is already stopping."""
        if attempt.phase is AttemptPhase.STOPPING:
            return
        # A dead gateway logs nothing about its requests, so this process does.
        log = self._log.warning if code == Code.GATEWAY_GONE else self._log.debug
        log("request stopped", request_id=attempt.run.label, code=code, tokens=attempt.tokens)
        self._outbox.dropped(attempt.key)
        if attempt.phase is AttemptPhase.WAITING:
            self.end(attempt, code)
        else:
            self._stop(attempt, code)

    def _stop(self, attempt: Attempt, code: str) -> None:
        if self._cancellations is not None:
            self._cancellations.stop(attempt, code)
        else:
            self.end(attempt, code)

    def end(self, attempt: Attempt, code: str) -> None:
        """End an attempt without an outcome."""
        prompt = attempt.answer.prompt_tokens(code)
        end = self.reports.make(attempt, code, tokens=attempt.tokens, prompt_tokens=prompt)
        self._remove(attempt, end if code != Code.RETURNED else None)
        self._bus.send(end)
        if not self._attempts:
            self._on_empty()

    def _remove(self, attempt: Attempt, end: AttemptEnded | None = None) -> None:
        """Remove an attempt from the table. The caller reports its end.

        ``end``: what the next supervisor is told; None if the gateway learns the end only from the supervisor.
        """
        self._used(attempt, self._loop.now())
        if end is not None:
            self.reports.keep(end)
        attempt.enter(AttemptPhase.ENDED)
        self._attribute_lines(attempt, lambda: self._line_attribution.before_end(attempt.run.label))
        del self._attempts[attempt.key]
        attempt.exchange = None  # it refers to the attempt, and would keep it and its request in memory

    def _attribute_lines(self, attempt: Attempt, before_change: Callable[[], None]) -> None:
        """Read the engine's output before the attempts change. An exception there costs no attempt its slot."""
        try:
            before_change()
        except Exception as error:  # noqa: BLE001 - a programming error costs log lines, not a request
            self._loop.report_error(error, self._log, "the engine's output was not read", request_id=attempt.run.label)

    def _overflowed(self, key: RequestKey) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.phase is AttemptPhase.RUNNING:
            self._stop(attempt, Code.CLIENT_TOO_SLOW)

    # What attempts report; see :class:`~workers.requests.attempt.AttemptOwner`.

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """Pass output on to the gateway. Without output, tell it now and then that the engine works."""
        if self._session is not None:
            self._session.monitor.progress()
        if attempt.phase is AttemptPhase.STOPPING:
            if self._cancellations is not None:
                self._cancellations.advanced(attempt)
        elif data:
            self._outbox.delta(attempt.key, data, tokens)
        elif attempt.keepalive_due(KEEPALIVE_INTERVAL_S):
            self._outbox.alive(attempt.key)

    def completed(self, attempt: Attempt, body: bytes) -> None:
        """End a generation that is complete."""
        outcome = attempt.answer.outcome(self._session.spec.name if self._session else "")
        end = self.reports.make(attempt, outcome=outcome)
        outcome = end.outcome or outcome
        if body:
            self._outbox.delta(attempt.key, body, attempt.tokens)
        self._outbox.done(attempt.key, outcome)
        if logs.debug_enabled():
            self._log.debug("answered", request_id=attempt.run.label, **outcome.figures())
        self._remove(attempt, end)
        delay = end_delay(running=len(self._attempts), slots=self._session.backend.slots if self._session else 0)
        if delay:
            self._bus.send_soon(end, delay)
        else:
            # Before the client has its answer, because its next request must not reach a supervisor that sees no free
            # slot.
            self._bus.send(end)
        if not self._attempts:
            self._on_empty()

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        """End an attempt with a failure."""
        # The gateway logs a caller's mistake.
        is_ours = failure.http_status >= 500 and failure.code is not Code.RETURNED  # then it is tried elsewhere
        log = self._log.warning if is_ours else self._log.debug
        log("request failed", request_id=attempt.run.label, code=failure.code, reason=failure.loggable_message)
        self._outbox.failed(attempt.key, failure)
        if stopped:
            self.end(attempt, failure.code)
        else:
            self._stop(attempt, failure.code)

    def broken(self, attempt: Attempt, failure: Failure) -> None:
        """Fail an attempt whose connection broke, unless the engine turns out to have died: a server elsewhere has not."""

        def fail_if_running() -> None:
            if self._attempts.get(attempt.key) is attempt and attempt.phase is AttemptPhase.RUNNING:
                self.failed(attempt, failure, stopped=False)

        session = self._session
        elsewhere = session is not None and session.backend.servers and attempt.answer.status
        self._loop.call_later(0.0 if elsewhere else DEATH_NOTICE_DELAY_S, fail_if_running)

    def crashed(self, attempt: Attempt, error: BaseException) -> None:
        """Fail an attempt for which our own code raised; log the traceback."""
        self._loop.report_error(error, self._log, "a request raised an exception", request_id=attempt.run.label)
        if self._attempts.get(attempt.key) is not attempt:
            return
        if attempt.phase is AttemptPhase.STOPPING:
            self.discarded(attempt)
            return
        failure = Failure(Code.INTERNAL, "an internal error; the server's log has the details", model=attempt.run.model)
        self.failed(attempt, failure, stopped=attempt.phase is AttemptPhase.WAITING)

    def discarded(self, attempt: Attempt) -> None:
        """Free the slot of a stopping attempt once the engine has stopped."""
        if self._cancellations is not None:
            self._cancellations.response_ended(attempt)
