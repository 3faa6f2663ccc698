"""Requests that nobody wants any more: hang up, then ask the engine until it has really stopped.

Only then is their grant free: a supervisor that believed a cancellation would grant slots that are still busy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.ids import RequestKey
from protocol.messages.work import AttemptAbandoned
from protocol.models.recipes import IdleCheck
from protocol.runtime.loop import Loop, Timer
from workers.backends.base import Backend
from workers.engine.connection_pool import EngineConnectionPool
from workers.engine.readiness import BufferedResponse
from workers.worker.attempt import Attempt, AttemptPhase
from workers.worker.bus import WorkerBus

IDLE_POLL_INTERVAL_S: Final = 0.008
HANG_UP_DELAY_S: Final = 0.25
"""How long an engine that has not yet taken a request up is given to do so: after that it notices a hang-up at
once, before that it may begin to work when its slots were already found idle."""

STILL_BUSY_NOTICE_S: Final = 1.0
"""An engine that does not stop for so long may take as long as it likes, and the supervisor hears of it."""


class Cancellations:
    """The stopping requests of one engine."""

    def __init__(
        self,
        loop: Loop,
        bus: WorkerBus,
        backend: Backend,
        client: EngineConnectionPool,
        attempts: dict[RequestKey, Attempt],
        idle: Callable[[Attempt, str], None],
    ) -> None:
        """``attempts``: all that are under way; ``idle`` is called when the engine has stopped working on one."""
        self._loop, self._bus, self._backend, self._client = loop, bus, backend, client
        self._attempts, self._idle = attempts, idle
        self._polling: Timer | None = None

    def stop(self, attempt: Attempt, code: str) -> None:
        """Let the engine stop."""
        attempt.phase, attempt.code = AttemptPhase.STOPPING, code
        exchange = attempt.exchange
        if exchange is None:
            self._idle(attempt, code)
        elif self._may_hang_up(attempt):
            if attempt.answering or exchange.connection is None:
                self.hang_up(attempt)
            else:
                exchange.hurry()
                self._loop.call_later(HANG_UP_DELAY_S, lambda: self.hang_up(attempt))
        elif exchange.connection is None:
            self._idle(attempt, code)
        self._loop.call_later(min(STILL_BUSY_NOTICE_S, self._backend.settings.grace), lambda: self._unwanted(attempt))

    def _unwanted(self, attempt: Attempt) -> None:
        if self._attempts.get(attempt.key) is attempt:
            self._bus.send(AttemptAbandoned(*attempt.key))

    def _may_hang_up(self, attempt: Attempt) -> bool:
        check = self._backend.idle_check(attempt.run.endpoint)
        return check == IdleCheck.CLOSED or (check == IdleCheck.SLOTS and attempt.request.streamed)

    def advanced(self, attempt: Attempt) -> None:
        """The engine said something about a stopping request: now it hears who hangs up."""
        if attempt.exchange is not None and self._may_hang_up(attempt):
            self.hang_up(attempt)

    def hang_up(self, attempt: Attempt) -> None:
        """Close the connection and begin to ask. Idempotent."""
        exchange, attempt.exchange = attempt.exchange, None
        if exchange is not None:
            exchange.cancel()
        if self._polling is None and self._client.open and self._attempts.get(attempt.key) is attempt:
            self._polling = self._loop.call_later(IDLE_POLL_INTERVAL_S, self._poll)

    def over(self, attempt: Attempt) -> None:
        """The answer of a stopping request was read to its end, or its connection broke."""
        if self._may_hang_up(attempt):
            self.hang_up(attempt)
        elif self._client.open:
            self._idle(attempt, attempt.code)

    def end(self) -> None:
        """The engine is dead."""
        if self._polling is not None:
            self._polling.cancel()

    def _poll(self) -> None:
        if self._client.open:
            self._client.send(self._backend.busy(), BufferedResponse(self._polled))

    def _polled(self, status: int, body: bytes) -> None:
        self._polling = None
        hung_up = [
            attempt
            for attempt in self._attempts.values()
            if attempt.phase is AttemptPhase.STOPPING and attempt.exchange is None
        ]
        if not hung_up:
            return
        allowed = sum(
            attempt.request.weight
            for attempt in self._attempts.values()
            if attempt.phase is AttemptPhase.RUNNING or attempt.exchange is not None
        )
        try:
            idle = status == self._backend.busy_status and self._backend.processing(body) <= allowed
        except ValueError:
            idle = False
        if not idle:
            self._polling = self._loop.call_later(IDLE_POLL_INTERVAL_S, self._poll)
            return
        for attempt in hung_up:
            self._idle(attempt, attempt.code)
