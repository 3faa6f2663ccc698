"""Stops attempts whose result is no longer wanted, and finds out when the engine has really stopped.

Invariants:

* The grant of a stopping attempt ends only when the engine has stopped working on it: a supervisor that believed a
  cancellation would grant slots that are still busy.
* A slot is never lost. An engine that does not answer the slot probe is ended after the setting ``silence``. One
  whose answers cannot be read is ended after ``MAX_UNREADABLE_S``. An engine all of whose clients left
  more than ``silence`` seconds ago is ended at once.
* At most one slot probe is in progress.
* An engine that is still reading the text of a request has no slot for it yet, and would be found idle. If it announces
  that it begins with the prompt, its connection is only closed then, because it would not notice earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocol.ids import RequestKey
from protocol.messages.work import AttemptAbandoned
from protocol.models.recipes import IdleCheck
from protocol.runtime import logs
from protocol.runtime.loop import Loop, Timer
from workers.requests.attempt import Attempt, AttemptPhase
from workers.requests.interfaces import RequestBus, RequestEngine
from workers.requests.slot_probe import SlotProbe

MIN_POLL_INTERVAL_S: Final = 0.008
MAX_POLL_INTERVAL_S: Final = 0.25
POLL_SHARE: Final = 0.1
"""The time between two slot probes, as a fraction of the time waited so far."""
MAX_UNREADABLE_S: Final = 5.0
"""If an engine's answers to the slot probe are unreadable for this long, it is ended."""
CLOSE_DELAY_S: Final = 0.25
"""How long an engine that has not yet begun with a request has to begin: from then on it notices at once that the
connection was closed. Before that, it may begin after its slots were already found idle."""
STILL_BUSY_NOTICE_S: Final = 1.0
"""After this long, an engine that has not stopped is reported to the supervisor."""


def next_poll_interval(waited: float) -> float:
    """Return how long to wait for the next slot probe, after ``waited`` seconds of asking."""
    return min(MAX_POLL_INTERVAL_S, max(MIN_POLL_INTERVAL_S, POLL_SHARE * waited))


class Cancellations:
    """The stopping attempts of one engine."""

    def __init__(
        self,
        loop: Loop,
        bus: RequestBus,
        session: RequestEngine,
        probe: SlotProbe,
        attempts: Mapping[RequestKey, Attempt],
        on_stopped: Callable[[Attempt, str], None],
    ) -> None:
        """``attempts``: all that have not ended. ``on_stopped``: the engine has stopped working on one."""
        self._loop, self._bus, self._session = loop, bus, session
        self._backend, self._pool = session.backend, session.pool
        self._attempts, self._on_stopped = attempts, on_stopped
        self._probe = probe
        self._poll_timer: Timer | None = None
        self._asking = False
        self._asking_since = 0.0
        self._unreadable_since: float | None = None

    def stop(self, attempt: Attempt, code: str) -> None:
        """Let the engine stop working on a running attempt."""
        attempt.enter(AttemptPhase.STOPPING)
        attempt.stop_code = code
        exchange = attempt.exchange
        if exchange is None:
            self._on_stopped(attempt, code)
            return
        if self._backend.idle_check(attempt.run.endpoint) == IdleCheck.DISCONNECTED:
            attempt.exchange = None
            exchange.cancel()
            self._on_stopped(attempt, code)
            return
        if self._stops_on_close(attempt):
            if attempt.answer.status or exchange.connection is None:
                self._close(attempt)
            else:
                exchange.read_immediately()
                if not attempt.request.announced:
                    self._loop.call_later(CLOSE_DELAY_S, lambda: self._close(attempt))
        elif exchange.connection is None:
            self._on_stopped(attempt, code)
            return
        notice = min(STILL_BUSY_NOTICE_S, self._backend.settings.grace)
        self._loop.call_later(notice, lambda: self._report_if_busy(attempt))
        key = attempt.key  # most attempts end long before: a timer that holds one would keep its answer for this long
        self._loop.call_later(self._backend.silence, lambda: self._end_if_useless(key))

    def advanced(self, attempt: Attempt) -> None:
        """Note that the engine sent something for a stopping attempt: from now on it notices a closed connection."""
        if attempt.exchange is not None and self._stops_on_close(attempt):
            self._close(attempt)

    def response_ended(self, attempt: Attempt) -> None:
        """Note that the response of a stopping attempt has ended, in whatever way."""
        if self._stops_on_close(attempt):
            self._close(attempt)
        elif self._pool.open:
            self._on_stopped(attempt, attempt.stop_code)

    def engine_died(self) -> None:
        """Stop asking."""
        if self._poll_timer is not None:
            self._poll_timer.cancel()

    def _report_if_busy(self, attempt: Attempt) -> None:
        if self._attempts.get(attempt.key) is attempt:
            attempt.abandoned = True
            self._bus.send(AttemptAbandoned(*attempt.key))

    def _end_if_useless(self, key: RequestKey) -> None:
        """End an engine that has worked this long on a request without a client, once it works for no other one."""
        if key not in self._attempts or not self._pool.open:
            return
        if any(each.phase is AttemptPhase.RUNNING for each in self._attempts.values()):
            self._loop.call_later(STILL_BUSY_NOTICE_S, lambda: self._end_if_useless(key))
        else:
            self._session.end_useless()

    def _stops_on_close(self, attempt: Attempt) -> bool:
        check = self._backend.idle_check(attempt.run.endpoint)
        return check == IdleCheck.CLOSED or (check == IdleCheck.SLOTS and attempt.request.streamed)

    def _close(self, attempt: Attempt) -> None:
        """Close the connection and begin to ask whether the engine is idle. Idempotent."""
        exchange, attempt.exchange = attempt.exchange, None
        if exchange is not None:
            exchange.cancel()
        if not self._asking and self._pool.open and self._attempts.get(attempt.key) is attempt:
            self._asking, self._asking_since = True, self._loop.now()
            self._unreadable_since = None
            self._poll_later()

    def _poll_later(self) -> None:
        waited = self._loop.now() - self._asking_since
        self._poll_timer = self._loop.call_later(next_poll_interval(waited), self._poll)

    def _poll(self) -> None:
        self._poll_timer = None
        if self._pool.open:
            self._probe.ask(self._answered)

    def _answered(self, status: int, body: bytes) -> None:
        closed = [
            attempt
            for attempt in self._attempts.values()
            if attempt.phase is AttemptPhase.STOPPING and attempt.exchange is None
        ]
        if not closed:
            self._asking = False
            return
        busy = self._busy_slots(status, body)
        if busy is None and self._unreadable_for() >= MAX_UNREADABLE_S:
            self._asking = False
            self._session.end_unusable(f"it answered {self._backend.busy().path} with {status or 'nothing'}")
            return
        if busy is None or busy > self._slots_in_use():
            self._poll_later()
            return
        self._asking = False
        for attempt in closed:
            self._on_stopped(attempt, attempt.stop_code)

    def _busy_slots(self, status: int, body: bytes) -> int | None:
        """Return how many slots of the engine are busy, None for an answer that does not say."""
        try:
            if status and self._backend.busy_status in (status, 0):
                busy = self._backend.processing(body)
                self._unreadable_since = None
                return busy
        except ValueError:
            pass
        except Exception as error:  # noqa: BLE001 - a programming error must not end the probes: a slot would be lost
            self._loop.report_error(error, logs.get_logger(), "the engine's state was not read")
        return None

    def _unreadable_for(self) -> float:
        now = self._loop.now()
        if self._unreadable_since is None:
            self._unreadable_since = now
        return now - self._unreadable_since

    def _slots_in_use(self) -> int:
        """Return how many slots may be busy for attempts that are not to be stopped, or whose connection is not closed yet."""
        return sum(
            attempt.request.weight
            for attempt in self._attempts.values()
            if attempt.phase is AttemptPhase.RUNNING or attempt.exchange is not None
        )
