"""The requests of this worker, from Run to Idle: who waits, who runs, who is told what."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.messages.leases import IssueLease, RevokeLease
from protocol.messages.work import AttemptEnded, Run
from protocol.models.sampling import SamplingValue
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from protocol.runtime.process_context import ProcessContext
from protocol.wire import endpoints
from workers.backends.base import Backend
from workers.engine.connection_pool import EngineConnectionPool
from workers.engine.line_attribution import LineAttribution
from workers.stream.event_outbox import FLUSH_RETRY_S, EventOutbox
from workers.worker.attempt import Attempt, AttemptPhase
from workers.worker.bus import WorkerBus
from workers.worker.cancellation import Cancellations
from workers.worker.engine_monitor import EngineMonitor
from workers.worker.lease_manager import WorkerLeaseManager
from workers.worker.subscriptions import Subscriptions

DEATH_NOTICE_DELAY_S: Final = 1.0
"""A broken connection is most often a dying engine: its death, a moment later, says more."""
KEEPALIVE_INTERVAL_S: Final = 1.0
LEASED_END_DELAY_S: Final = 0.01
"""How long the supervisor may wait for the end of what ran under a lease."""


class WorkerRequests:
    """The owner of all attempts."""

    def __init__(
        self, loop: Loop, bus: WorkerBus, context: ProcessContext, settings: Settings, on_empty: Callable[[], None]
    ) -> None:
        """Take no requests yet. ``on_empty`` is called when the last one has ended."""
        self._loop, self._bus, self._context, self._settings = loop, bus, context, settings
        self._on_empty = on_empty
        self._log = logs.get_logger()
        self._subscriptions = Subscriptions()
        self._outbox = EventOutbox(bus.publish)
        self._attempts: dict[RequestKey, Attempt] = {}
        self.line_attribution = LineAttribution(self._attempts, loop.now)
        self._leases = WorkerLeaseManager(loop, bus, self._subscriptions, self._attempts)
        self._backend: Backend | None = None
        self._client: EngineConnectionPool | None = None
        self._cancellations: Cancellations | None = None
        self._monitor: EngineMonitor | None = None
        self._accepts = False
        self._sampling: Mapping[str, SamplingValue] = {}
        self._flush_timer: Timer | None = None
        self._half = 0.0
        """Half of the engine's slots."""
        self._logs_outcomes = settings.log_level in ("debug", "trace")
        bus.on_subscription = self._subscription
        loop.after_each_iteration(self._turn_end)

    def __len__(self) -> int:
        """Return how many have not ended."""
        return len(self._attempts)

    def busy(self) -> bool:
        """Return whether the engine has work."""
        return any(attempt.phase is not AttemptPhase.WAITING for attempt in self._attempts.values())

    def open(self, backend: Backend, client: EngineConnectionPool, monitor: EngineMonitor, log: logs.Logger) -> None:
        """An engine is ready: take requests."""
        self._backend, self._client, self._monitor, self._log = backend, client, monitor, log
        backend.sampling = self._sampling
        self._cancellations = Cancellations(self._loop, self._bus, backend, client, self._attempts, self._idle)
        self._half = backend.slots / 2
        self._accepts = True

    def sample(self, defaults: Mapping[str, SamplingValue]) -> None:
        """Use these sampling defaults for the generations that are still to begin."""
        self._sampling = defaults
        if self._backend is not None:
            self._backend.sampling = defaults

    def close(self) -> None:
        """Take no more requests; those under way go on."""
        self._accepts = False
        self._leases.end_all()

    def fail_all(self, failure: Failure) -> None:
        """End all of them: the engine is dead, or is about to be."""
        self._accepts = False
        self._leases.clear()
        if self._cancellations is not None:
            self._cancellations.end()
        for attempt in list(self._attempts.values()):
            del self._attempts[attempt.key]
            attempt.exchange = None
            if attempt.phase is AttemptPhase.WAITING:
                self._subscriptions.forget(attempt.key)
                self._bus.send(AttemptEnded(*attempt.key, code=Code.RETURNED))
            elif attempt.phase is AttemptPhase.RUNNING:
                its = msgspec.structs.replace(failure, tokens_sent=attempt.tokens_sent)
                self._log.warning(
                    "request lost", request_id=attempt.run.label, code=failure.code, tokens=attempt.tokens
                )
                self._outbox.failed(attempt.key, its)
        self._flush()

    # What the supervisor and the gateways say.

    def run(self, run: Run, body: bytes) -> None:
        """Start a request once its gateway hears us; give it back if that does not come true."""
        key = RequestKey(run.gateway, run.number, run.attempt)
        if key in self._attempts:
            return
        if run.lease and not (
            self._accepts and self._subscriptions.is_subscribed(run.gateway) and self._leases.take(run)
        ):
            self._outbox.opened(key)
            self._outbox.failed(key, Failure(Code.RETURNED, "the lease is over", model=run.model))
            return
        if self._backend is None:
            return
        attempt = Attempt(run, body, self._backend.program, self._backend.alias, self, self._loop.now)
        self._attempts[key] = attempt
        if self._subscriptions.is_subscribed(run.gateway):
            self._start(attempt)
        elif not self._accepts:
            # It crossed with the engine's death, and the supervisor counts on us to tell the gateway.
            self._subscriptions.wait(key, math.inf)
        else:
            self._subscriptions.wait(key, self._loop.now())
            self._loop.call_later(self._settings.subscribe_timeout, self._give_back)

    def lend(self, message: IssueLease) -> None:
        """Let a gateway send requests itself."""
        self._leases.lend(message, open_for=self._accepts)

    def recall(self, message: RevokeLease) -> None:
        """Let it do so no longer."""
        self._leases.end(message.gateway, message.lease)

    def cancel(self, key: RequestKey, code: str) -> None:
        """Nobody wants it any more. Unknown ones are ignored."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.phase is AttemptPhase.STOPPING:
            return
        # Nobody else is left to tell of what a dead gateway had.
        say = self._log.warning if code == Code.GATEWAY_GONE else self._log.debug
        say("request stopped", request_id=attempt.run.label, code=code, tokens=attempt.tokens)
        self._outbox.dropped(key)
        if attempt.phase is AttemptPhase.WAITING:
            self._subscriptions.forget(key)
            self._idle(attempt, code)
        else:
            self._stop(attempt, code)

    def _subscription(self, joined: bool, topic: bytes) -> None:
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

    def _give_back(self) -> None:
        # A hair less patience: the timer that is due must find its own request.
        for key in self._subscriptions.overdue(self._loop.now(), self._settings.subscribe_timeout - 0.001):
            self._idle(self._attempts[key], Code.RETURNED)

    def _start(self, attempt: Attempt) -> None:
        self._outbox.opened(attempt.key)
        if not self._accepts or self._backend is None or self._client is None or self._monitor is None:
            failure = Failure(Code.RETURNED, "the worker takes no requests now", model=attempt.run.model)
            self.failed(attempt, failure, stopped=True)
            return
        try:
            body = attempt.body
            if attempt.run.spool:
                body = (endpoints.spool(self._context.runtime) / Path(attempt.run.spool).name).read_bytes()
            request = self._backend.request(attempt.run.endpoint, attempt.run.query, body, attempt.run.stream)
        except LemonbusError as problem:
            self.failed(attempt, problem.failure, stopped=True)
            return
        except OSError as problem:
            failure = Failure(Code.INTERNAL, "the request's body is not there any more", detail=str(problem))
            self.failed(attempt, failure, stopped=True)
            return
        if request.streamed and not attempt.run.stream and self._backend.descriptor.silence_by_cpu:
            # Its progress shows by the engine's CPU time: nobody has to be woken for each token.
            request = request._replace(patient=True)
        attempt.started(request)
        attempt.exchange = self._client.send(request, attempt)
        self._monitor.wake()

    def _stop(self, attempt: Attempt, code: str) -> None:
        if self._cancellations is not None:
            self._cancellations.stop(attempt, code)

    def _idle(self, attempt: Attempt, code: str) -> None:
        self._removed(attempt)
        self._bus.send(AttemptEnded(*attempt.key, code=code, lease=attempt.run.lease))
        if not self._attempts:
            self._on_empty()

    def _removed(self, attempt: Attempt) -> None:
        del self._attempts[attempt.key]
        self.line_attribution.ended(attempt.run.label)
        attempt.exchange = None  # it knows the attempt, and would keep it with its request
        if attempt.run.lease:
            self._leases.give(attempt.run)

    # What attempts say.

    def advanced(self, attempt: Attempt, data: bytes, tokens: int) -> None:
        """See :class:`~workers.worker.attempt.AttemptOwner`."""
        if self._monitor is not None:
            self._monitor.progress()
        if attempt.phase is AttemptPhase.STOPPING:
            if self._cancellations is not None:
                self._cancellations.advanced(attempt)
        elif data:
            self._outbox.delta(attempt.key, data, tokens)
        elif attempt.silent_for(KEEPALIVE_INTERVAL_S):
            self._outbox.alive(attempt.key)

    def completed(self, attempt: Attempt, answer: bytes) -> None:
        """See :class:`~workers.worker.attempt.AttemptOwner`."""
        outcome = attempt.outcome(self._backend.spec.name if self._backend else "")
        if answer:
            self._outbox.delta(attempt.key, answer, attempt.tokens)
        self._outbox.done(attempt.key, outcome)
        if self._logs_outcomes:
            self._log.debug("answered", request_id=attempt.run.label, **outcome.figures())
        self._removed(attempt)
        lease = attempt.run.lease
        end = AttemptEnded(*attempt.key, outcome=outcome, lease=lease)
        # Nobody waits for what is lent, nor while most slots are free and none are.
        if self._attempts and lease and self._leases.holds(attempt.run):
            self._bus.send_soon(end, LEASED_END_DELAY_S)
        elif 0 < len(self._attempts) < self._half and not self._leases:
            self._bus.send_soon(end)
        else:
            self._bus.send(end)
        if not self._attempts:
            self._on_empty()

    def failed(self, attempt: Attempt, failure: Failure, stopped: bool) -> None:
        """See :class:`~workers.worker.attempt.AttemptOwner`."""
        # What the caller did wrong is told once, by the gateway.
        say = self._log.warning if failure.http_status >= 500 else self._log.debug
        say("request failed", request_id=attempt.run.label, code=failure.code, reason=failure.loggable_message)
        self._outbox.failed(attempt.key, failure)
        if stopped:
            self._idle(attempt, failure.code)
        else:
            self._stop(attempt, failure.code)

    def broken(self, attempt: Attempt, failure: Failure) -> None:
        """See :class:`~workers.worker.attempt.AttemptOwner`."""

        def judge() -> None:
            if self._attempts.get(attempt.key) is attempt and attempt.phase is AttemptPhase.RUNNING:
                self.failed(attempt, failure, stopped=False)

        self._loop.call_later(DEATH_NOTICE_DELAY_S, judge)

    def discarded(self, attempt: Attempt) -> None:
        """See :class:`~workers.worker.attempt.AttemptOwner`."""
        if self._cancellations is not None:
            self._cancellations.over(attempt)

    # What leaves.

    def _turn_end(self) -> None:
        while self._outbox.overflowed:
            attempt = self._attempts.get(self._outbox.overflowed.pop())
            if attempt is not None and attempt.phase is AttemptPhase.RUNNING:
                self._stop(attempt, Code.CLIENT_TOO_SLOW)
        self._flush()

    def _flush(self) -> None:
        self._outbox.flush()
        if self._outbox.stalled and self._flush_timer is None:
            self._flush_timer = self._loop.call_later(FLUSH_RETRY_S, self._flush_again)

    def _flush_again(self) -> None:
        self._flush_timer = None
        self._outbox.stalled.clear()
        self._flush()
