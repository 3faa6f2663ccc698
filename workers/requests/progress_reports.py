"""An engine's progress with a request: reported to the supervisor now and then, and logged more rarely."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocol.ids import RequestKey
from protocol.messages.work import AttemptProgress
from protocol.runtime import logs
from workers.backends.engine_facts import EngineProgress
from workers.requests.attempt import Attempt, AttemptPhase

MESSAGE_INTERVAL_S: Final = 1.0
LOG_INTERVAL_S: Final = 10.0
"""Most requests end before this: their progress is not logged."""


class ProgressReports:
    """The reports of one engine, which works on one request at a time."""

    def __init__(
        self,
        attempts: Mapping[RequestKey, Attempt],
        send: Callable[[AttemptProgress], object],
        clock: Callable[[], float],
    ) -> None:
        """``attempts``: all that are in progress. ``send`` tells the supervisor."""
        self._attempts, self._send, self._clock = attempts, send, clock
        self._key: RequestKey | None = None
        self._reported = self._logged = 0.0

    def report(self, progress: EngineProgress, log: logs.Logger) -> Attempt | None:
        """Return the attempt that the engine works on; None if there is none, or it is unknown which."""
        at_work = [attempt for attempt in self._attempts.values() if attempt.phase is not AttemptPhase.WAITING]
        if len(at_work) != 1 or at_work[0].phase is AttemptPhase.ENDED:
            return None  # the output is read while an attempt is being removed
        attempt, now = at_work[0], self._clock()
        if attempt.key != self._key:
            # The first report comes at once, the first log line only if there is much to do.
            self._key, self._reported, self._logged = attempt.key, now - MESSAGE_INTERVAL_S, now
        if now - self._reported >= MESSAGE_INTERVAL_S:
            self._reported = now
            self._send(AttemptProgress(*attempt.key, attempt.run.label, *progress))
        if now - self._logged >= LOG_INTERVAL_S:
            self._logged = now
            log.info("request progress", request_id=attempt.run.label, **progress._asdict())
        return attempt
