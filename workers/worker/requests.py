"""The attempts of this worker, from `Run` to `AttemptEnded`: which wait, run and stop, and who is told.

Invariants:

* An attempt is in ``_attempts`` from its `Run` until its grant ends; then exactly one `AttemptEnded` is sent, or
  `EngineDied` ends all of them together.
* No attempt starts before this worker has read its gateway's subscription: before that, events would be lost.
* Nothing of an attempt is published after its end, or after it was cancelled.
* An exception of our own code fails the one request that it concerns, with ``internal_error``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.messages.leases import IssueLease, RevokeLease
from protocol.messages.work import AttemptEnded, Run
from protocol.models.sampling import SamplingValue
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from workers.backends.base import EngineProgress
from workers.engine.line_attribution import LineAttribution
from workers.worker.attempt import Attempt, AttemptPhase
from workers.worker.bus import WorkerBus
from workers.worker.cancellation import Cancellations
from workers.worker.end_batching import end_delay
from workers.worker.engine_request import engine_request
from workers.worker.engine_session import EngineSession
from workers.worker.event_publisher import EventPublisher
from workers.worker.lease_manager import WorkerLeaseManager
from workers.worker.progress_reports import ProgressReports
from workers.worker.subscriptions import Subscriptions

DEATH_NOTICE_DELAY_S: Final = 1.0
"""A broken connection is most often a dying engine: the report of its exit, a moment later, says more."""
KEEPALIVE_INTERVAL_S: Final = 1.0


class WorkerRequests:
    """All attempts of this worker. It is their :class:`~workers.worker.attempt.AttemptOwner`."""

    def __init__(
        self, loop: Loop, bus: WorkerBus, context: ProcessContext, settings: Settings, on_empty: Callable[[], None]
    ) -> None:
        """Take no requests yet. ``on_empty`` is called when the last one has ended."""
        self._loop, self._bus, self._context, self._settings = loop, bus, context, settings
        self._on_empty = on_empty
        self._log = logs.get_logger()
        self._subscriptions = Subscriptions()
        self._publisher = EventPublisher(loop, bus, self._overflowed)
        self._outbox = self._publisher.outbox
        self._attempts: dict[RequestKey, Attempt] = {}
        self.line_attribution = LineAttribution(self._attempts, loop.now, loop.call_last)
        self._progress = ProgressReports(self._attempts, bus.send, loop.now)
        self._leases = WorkerLeaseManager(loop, bus, self._subscriptions, self._attempts)
        self._session: EngineSession | None = None
        self._cancellations: Cancellations | None = None
        self._accepts = False
        self._sampling: Mapping[str, SamplingValue] = {}
        self._logs_outcomes = settings.log_level in ("debug", "trace")
        bus.on_subscription = self._subscription_changed

    def __len__(self) -> int:
        """Return how many have not ended."""
        return len(self._attempts)

    def busy(self) -> bool:
        """Return whether the engine has work."""
        return any(attempt.phase is not AttemptPhase.WAITING for attempt in self._attempts.values())

    def report_progress(self, progress: EngineProgress) -> None:
        """Report how far the engine is with the one request that it works on."""
        attempt = self._progress.report(progress, self._log)
        if attempt is not None:
            self.advanced(attempt, b"", 0)

    # What the controller decides.

    def open(self, session: EngineSession, log: logs.Logger) -> None:
        """Take requests: an engine is ready."""
        self._session, self._log = session, log
        self.line_attribution.read_output = session.engine.read_output
        session.backend.sampling = self._sampling
        self._cancellations = Cancellations(self._loop, self._bus, session, self._attempts, self._end)
        self._accepts = True

    def set_sampling(self, defaults: Mapping[str, SamplingValue]) -> None:
        """Use these sampling defaults for the generations that begin from now on."""
        self._sampling = defaults
        if self._session is not None:
            self._session.backend.sampling = defaults

    def close(self) -> None:
        """Take no more requests; those that run go on."""
        self._accepts = False
        self._leases.end_all()

    def fail_all(self, failure: Failure) -> None:
        """End all of them: the engine is dead, or is about to be."""
        self._accepts = False
        self._leases.clear()
        if self._cancellations is not None:
            self._cancellations.engine_died()
        for attempt in list(self._attempts.values()):
            phase = attempt.phase
            self._remove(attempt)
            if phase is AttemptPhase.WAITING:
                self._subscriptions.forget(attempt.key)
                self._bus.send(AttemptEnded(*attempt.key, code=Code.RETURNED))
            elif phase is AttemptPhase.RUNNING:
                self._log.warning(
                    "request lost", request_id=attempt.run.label, code=failure.code, tokens=attempt.tokens
                )
                self._outbox.failed(attempt.key, msgspec.structs.replace(failure, tokens_sent=attempt.tokens_sent))
        self._publisher.flush()

    # What the supervisor and the gateways send.

    def run(self, run: Run, body: bytes) -> None:
        """Start a request once its gateway has subscribed; return it if the gateway does not."""
        key = RequestKey(run.gateway, run.number, run.attempt)
        if key in self._attempts:
            return
        subscribed = self._subscriptions.is_subscribed(run.gateway)
        if run.lease and not (self._accepts and subscribed and self._leases.use(run)):
            self._outbox.opened(key)
            self._outbox.failed(key, Failure(Code.RETURNED, "the lease is over", model=run.model))
            return
        if self._session is None:
            return
        backend = self._session.backend
        attempt = Attempt(run, body, backend.program, backend.alias, self, self._loop.now)
        self.line_attribution.before_start()
        self._attempts[key] = attempt
        if subscribed:
            self._start(attempt)
        elif not self._accepts:
            # It was sent before the engine's death was known; the supervisor returns it to its gateway itself.
            self._subscriptions.wait(key, math.inf)
        else:
            self._subscriptions.wait(key, self._loop.now())
            self._loop.call_later(self._settings.subscribe_timeout, self._return_overdue)

    def issue_lease(self, message: IssueLease) -> None:
        """Let a gateway send requests itself."""
        self._leases.issue(message, accepts=self._accepts)

    def revoke_lease(self, message: RevokeLease) -> None:
        """Let it do so no longer."""
        self._leases.end(message.gateway, message.lease)

    def cancel(self, key: RequestKey, code: str) -> None:
        """Stop an attempt whose result is not wanted any more. Unknown ones are ignored."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.phase is AttemptPhase.STOPPING:
            return
        # A dead gateway logs nothing about its requests, so this process does.
        log = self._log.warning if code == Code.GATEWAY_GONE else self._log.debug
        log("request stopped", request_id=attempt.run.label, code=code, tokens=attempt.tokens)
        self._outbox.dropped(key)
        if attempt.phase is AttemptPhase.WAITING:
            self._subscriptions.forget(key)
            self._end(attempt, code)
        else:
            self._stop(attempt, code)

    def _subscription_changed(self, joined: bool, topic: bytes) -> None:
        if joined:
            for key in self._subscriptions.joined(topic):
                self._start(self._attempts[key])
            return
        self._subscriptions.left(topic)
        gateway = topic[:-1].decode("utf-8", "replace")
        for key in [key for key in self._attempts if key.gateway == gateway]:
            self.cancel(key, Code.GATEWAY_GONE)
        self._outbox.gateway_left(gateway)
        self._leases.gateway_left(gateway)

    def _return_overdue(self) -> None:
        # A millisecond less than the timer's time, so that the timer finds the request that it was set for.
        for key in self._subscriptions.overdue(self._loop.now(), self._settings.subscribe_timeout - 0.001):
            self._end(self._attempts[key], Code.RETURNED)

    # One attempt's way.

    def _start(self, attempt: Attempt) -> None:
        self._outbox.opened(attempt.key)
        session = self._session
        if not self._accepts or session is None:
            failure = Failure(Code.RETURNED, "the worker takes no requests now", model=attempt.run.model)
            self.failed(attempt, failure, stopped=True)
            return
        try:
            request = engine_request(attempt.run, attempt.body, session.backend, self._context.runtime)
            attempt.start(request)
            attempt.exchange = session.pool.send(request, attempt)
            session.monitor.wake()
        except LemonbusError as problem:
            self.failed(attempt, problem.failure, stopped=True)
        except Exception as error:  # noqa: BLE001 - a programming error ends one request, not the worker
            self.crashed(attempt, error)

    def _stop(self, attempt: Attempt, code: str) -> None:
        if self._cancellations is not None:
            self._cancellations.stop(attempt, code)
        else:
            self._end(attempt, code)

    def _end(self, attempt: Attempt, code: str) -> None:
        """End an attempt without an outcome."""
        self._remove(attempt)
        self._bus.send(AttemptEnded(*attempt.key, code=code, lease=attempt.run.lease))
        if not self._attempts:
            self._on_empty()

    def _remove(self, attempt: Attempt) -> None:
        attempt.enter(AttemptPhase.ENDED)
        self.line_attribution.before_end(attempt.run.label)
        del self._attempts[attempt.key]
        attempt.exchange = None  # it refers to the attempt, and would keep it and its request in memory
        if attempt.run.lease:
            self._leases.release(attempt.run)

    def _overflowed(self, key: RequestKey) -> None:
        attempt = self._attempts.get(key)
        if attempt is not None and attempt.phase is AttemptPhase.RUNNING:
            self._stop(attempt, Code.CLIENT_TOO_SLOW)

    # What attempts report; see :class:`~workers.worker.attempt.AttemptOwner`.

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """Hand output on, or a sign of life."""
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
        outcome = attempt.outcome(self._session.spec.name if self._session else "")
        if body:
            self._outbox.delta(attempt.key, body, attempt.tokens)
        self._outbox.done(attempt.key, outcome)
        if self._logs_outcomes:
            self._log.debug("answered", request_id=attempt.run.label, **outcome.figures())
        self._remove(attempt)
        delay = self._end_delay(attempt)
        end = AttemptEnded(*attempt.key, outcome=outcome, lease=attempt.run.lease)
        if delay:
            self._bus.send_soon(end, delay)
        else:
            # Before the client has its answer: its next request must not come to a supervisor that sees no free slot and
            # revokes all leases, nor must `stats` be about an earlier request.
            self._bus.send(end)
        if not self._attempts:
            self._on_empty()

    def _end_delay(self, attempt: Attempt) -> float:
        return end_delay(
            running=len(self._attempts),
            slots=self._session.backend.slots if self._session else 0,
            lease_stands=bool(attempt.run.lease) and self._leases.stands(attempt.run),
            any_lease=bool(self._leases),
        )

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        """End an attempt with a failure."""
        # The gateway logs a caller's mistake.
        log = self._log.warning if failure.http_status >= 500 else self._log.debug
        log("request failed", request_id=attempt.run.label, code=failure.code, reason=failure.loggable_message)
        self._outbox.failed(attempt.key, failure)
        if stopped:
            self._end(attempt, failure.code)
        else:
            self._stop(attempt, failure.code)

    def broken(self, attempt: Attempt, failure: Failure) -> None:
        """Fail an attempt whose connection broke, unless the engine turns out to have died."""

        def fail_if_running() -> None:
            if self._attempts.get(attempt.key) is attempt and attempt.phase is AttemptPhase.RUNNING:
                self.failed(attempt, failure, stopped=False)

        self._loop.call_later(DEATH_NOTICE_DELAY_S, fail_if_running)

    def crashed(self, attempt: Attempt, error: BaseException) -> None:
        """Fail an attempt for which our own code raised; log the traceback."""
        self._loop.errors += 1
        self._log.error("a request raised an exception", request_id=attempt.run.label, exc_info=error)
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
