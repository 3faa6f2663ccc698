"""Admits requests of keys that have limits to the scheduler, or refuses them with 429.

A client sends its next request when it has its answer, while the worker's report of that answer's end may still be on
its way here. If a decision depends on such reports, the request is held until the workers that run the key's requests
have answered a ping, which they do after their reports. This takes some tenths of a millisecond, or at most
``supervisor.bus.worker_barrier.BARRIER_TIMEOUT_S``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from msgspec import structs

from protocol.ids import RequestKey
from protocol.messages.caller import Caller, RateLimits
from protocol.runtime.loop import Loop
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.internal_errors import InternalErrors
from supervisor.limits.rate_limiter import RateLimiter
from supervisor.limits.token_budgets import TokenBudgets
from supervisor.metrics.snapshot import RemainingLimit
from supervisor.scheduler.scheduler import Scheduler

_LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "tokens_per_day", "tokens_per_month")
"""The fields of :class:`~protocol.messages.caller.RateLimits`, by the names of the limits."""
Report = Callable[[RequestKey, RateLimits], None]


class KeyAdmission:
    """Decides about each first attempt. A retry belongs to a request that was already admitted."""

    def __init__(
        self,
        loop: Loop,
        barrier: WorkerBarrier,
        scheduler: Scheduler,
        errors: InternalErrors,
        limits: RateLimiter,
        budgets: TokenBudgets,
        report: Report,
        remember: Callable[[str], None],
        resumed: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``report`` sends a gateway the limits of a request's key. ``remember``: they have changed.

        ``resumed`` is called after a decision about a held request. ``clock``: Unix seconds, for the budgets.
        """
        self._loop, self._barrier, self._scheduler, self._errors = loop, barrier, scheduler, errors
        self._limits, self._budgets, self._clock = limits, budgets, clock
        self._report, self._remember, self._resumed = report, remember, resumed
        self._held: set[RequestKey] = set()
        self._reserved: dict[RequestKey, Caller | None] = {}
        """Call that reserved a request → the caller (None without keys), until the request comes."""

    @property
    def reserved(self) -> int:
        """How many accepted requests are still to come: their pictures or recordings are being read."""
        return len(self._reserved)

    def admit(
        self,
        key: RequestKey,
        caller: Caller | None,
        submit: Callable[[], None],
        reservation: RequestKey | None = None,
        *,
        admitted: bool = False,
    ) -> None:
        """Call ``submit``, now or in a moment, or refuse the request.

        ``reservation``: the call that has already counted it. ``admitted``: it was admitted before, by this supervisor
        or one that has ended, and a gateway with a new connection submits it again.
        """
        if caller is None or not caller.limited or key.attempt > 1:
            if reservation is not None:
                self._reserved.pop(reservation, None)
            submit()
            return
        reserved = reservation is not None and self._was_reserved(reservation, caller)
        if admitted or reserved:
            self._report(key, self._rate_limits(caller))
            submit()
            return
        workers = self._scheduler.view.workers_of_key(caller.key)
        if not workers or not self._depends_on_running(caller):
            self._decide(key, caller, submit)
            return
        self._held.add(key)

        def decide() -> None:
            if key not in self._held:
                return
            self._held.remove(key)
            try:
                self._decide(key, caller, submit)
            except Exception as problem:  # noqa: BLE001 - the client must get an answer
                self._scheduler.refuse(key, self._errors.failure_of(problem, where="admission"))
            self._resumed()

        self._barrier.wait(workers, decide)

    def reserve(self, call: RequestKey, caller: Caller | None, accepted: Callable[[], None]) -> None:
        """Count a coming request and call ``accepted``, now or in a moment; or refuse the call (attempt 0)."""

        def keep() -> None:
            self._reserved[call] = caller
            accepted()

        self.admit(call, caller, keep)

    def cancelled(self, key: RequestKey) -> None:
        """Forget a held request, or the reservation of a call: its client is gone."""
        self._held.discard(key)
        self._reserved.pop(key, None)

    def gateway_gone(self, gateway: str) -> None:
        """Forget what is held or reserved for a gateway that has ended."""
        self._held = {key for key in self._held if key.gateway != gateway}
        self._reserved = {call: caller for call, caller in self._reserved.items() if call.gateway != gateway}

    def gateway_reconnected(self, gateway: str) -> None:
        """Forget what is held or reserved for a gateway: it asks for all of it again, and only that counts."""
        for call, caller in self._reserved.items():
            if call.gateway == gateway and caller is not None and caller.limited:
                self._limits.give_back(caller, self._loop.now())
                self._remember(caller.key)
        self.gateway_gone(gateway)

    def _was_reserved(self, reservation: RequestKey, caller: Caller) -> bool:
        """Return whether the call has counted the caller's request; True only once for each call."""
        reserved = self._reserved.pop(reservation, None)
        return reserved is not None and reserved.key == caller.key

    def _depends_on_running(self, caller: Caller) -> bool:
        return bool(caller.counts_tokens or (caller.concurrent and self._open(caller) >= caller.concurrent))

    def _open(self, caller: Caller) -> int:
        """Return how many requests of a key wait, run or are reserved."""
        return self._scheduler.view.requests_of_key(caller.key) + len(self._reservations_of(caller))

    def _reserved_tokens(self, caller: Caller) -> int:
        """Return the tokens that a key's waiting, running and reserved requests may use."""
        reserved = sum(each.reserved_tokens for each in self._reservations_of(caller))
        return self._scheduler.view.reserved_tokens(caller.key) + reserved

    def _reservations_of(self, caller: Caller) -> list[Caller]:
        return [each for each in self._reserved.values() if each is not None and each.key == caller.key]

    def _decide(self, key: RequestKey, caller: Caller, submit: Callable[[], None]) -> None:
        now = self._loop.now()
        reserved = self._reserved_tokens(caller) if caller.counts_tokens else 0
        failure = self._limits.refusal(caller, self._open(caller), now, reserved)
        failure = self._budgets.refusal(caller, self._clock(), reserved) or failure
        if failure is None:
            self._limits.accept(caller, now)
            self._remember(caller.key)
        self._report(key, self._rate_limits(caller))
        if failure is None:
            submit()
        else:
            self._scheduler.refuse(key, failure)

    def _rate_limits(self, caller: Caller) -> RateLimits:
        """Return what is left of the limits of a key."""
        of_minute = self._limits.rate_limits(caller, self._loop.now())
        day, month = self._budgets.statuses(caller, self._clock())
        return structs.replace(of_minute, tokens_of_day=day, tokens_of_month=month)

    def remaining(self, callers: Iterable[Caller]) -> list[RemainingLimit]:
        """Return what is left of each limit of these keys, for the metrics."""
        found: list[RemainingLimit] = []
        for caller in callers:
            statuses = zip(_LIMITS, structs.astuple(self._rate_limits(caller)), strict=True)
            found += [RemainingLimit(caller.key, name, status.remaining) for name, status in statuses if status]
            if caller.concurrent:
                left = max(0, caller.concurrent - self._open(caller))
                found.append(RemainingLimit(caller.key, "concurrent", left))
        return found
