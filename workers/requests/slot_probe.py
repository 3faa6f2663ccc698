"""Asks an engine which of its slots are busy, and ends one whose loop does not answer.

A grammar or a schema can have more possibilities than an engine can ever try. Its loop is then busy with one request
for hours, and its processor time looks like progress. So while a request with a grammar runs, this probe watches the
engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.ids import RequestKey
from protocol.runtime.loop import Loop, Timer
from workers.engine.connections.exchange import BufferedResponse, OnResponse
from workers.requests.attempt import Attempt, AttemptPhase
from workers.requests.interfaces import RequestEngine

USAGE_PERIOD_S: Final = 0.25
MIN_WORK_S: Final = 0.05
"""Processor time within ``USAGE_PERIOD_S`` that tells an engine in an endless loop from one that was stopped or waits."""
WATCH_INTERVAL_S: Final = 1.0
"""A request with a grammar that ends sooner costs its engine no probe."""


class SlotProbe:
    """The probe, which a working engine must answer within the seconds of the setting ``silence``."""

    def __init__(self, loop: Loop, session: RequestEngine) -> None:
        """Ask nothing yet."""
        self._loop, self._session = loop, session

    def ask(self, then: OnResponse) -> None:
        """Ask. ``then`` gets the answer, and is not called if the engine is ended because it gave none."""
        backend = self._session.backend
        timer = self._loop.call_later(backend.silence, self._unanswered) if backend.answers_while_busy else None

        def answered(status: int, body: bytes) -> None:
            if timer is not None:
                timer.cancel()
            then(status, body)

        self._session.pool.send(backend.busy(), BufferedResponse(answered))

    def _unanswered(self) -> None:
        before = self._session.engine.usage().cpu_seconds
        self._loop.call_later(USAGE_PERIOD_S, lambda: self._end(before))

    def _end(self, before: float) -> None:
        if self._session.pool.open:
            backend = self._session.backend
            works = self._session.engine.usage().cpu_seconds - before >= MIN_WORK_S
            reason = f"it did not answer {backend.busy().path} within {backend.silence:g} s"
            self._session.end_silent(reason, works=works)


class GrammarWatch:
    """Asks as long as a request with a grammar runs. At most one probe is in progress."""

    def __init__(
        self, loop: Loop, session: RequestEngine, probe: SlotProbe, attempts: Mapping[RequestKey, Attempt]
    ) -> None:
        """``attempts``: all that have not ended."""
        self._loop, self._session, self._probe, self._attempts = loop, session, probe, attempts
        self._timer: Timer | None = None
        self._asking = False

    def wake(self) -> None:
        """Begin to watch, if a request with a grammar runs and nothing watches yet."""
        if self._timer is None and not self._asking and self._needed():
            self._timer = self._loop.call_later(WATCH_INTERVAL_S, self._ask)

    def stop(self) -> None:
        """Stop asking."""
        if self._timer is not None:
            self._timer.cancel()

    def _needed(self) -> bool:
        return self._session.pool.open and any(
            attempt.request.grammar and attempt.phase is AttemptPhase.RUNNING for attempt in self._attempts.values()
        )

    def _ask(self) -> None:
        self._timer = None
        if self._needed():
            self._asking = True
            self._probe.ask(self._answered)

    def _answered(self, _status: int, _body: bytes) -> None:
        self._asking = False
        self.wake()
