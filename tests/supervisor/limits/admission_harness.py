"""The admission of requests, with a clock of its own and a worker whose reports a test sends."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.peers import Ping
from protocol.messages.work import Refused
from protocol.runtime.loop import Loop
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.internal_errors import InternalErrors
from supervisor.limits.key_admission import KeyAdmission
from supervisor.limits.rate_limiter import RateLimiter
from supervisor.limits.token_budgets import TokenBudgets
from supervisor.scheduler.effects import SendMessage
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.scheduler import Scheduler

FIRST, SECOND = RequestKey("g1", 1, 1), RequestKey("g2", 1, 1)


CALL, OTHER_CALL = RequestKey("g1", 7, 0), RequestKey("g2", 8, 0)


class Admission:
    """The admission with a clock of its own, over a scheduler whose running requests the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0.0
        self.running: list[str] = []
        """Names of the keys of the requests that run, all of them at worker ``w1``."""
        self.loop = Loop(lambda: self.time)
        self.pings: list[int] = []
        self.barrier = WorkerBarrier(self.loop, self)  # type: ignore[arg-type]
        self.scheduler = Scheduler(SchedulerLimits(), lambda: "w1")
        self.reserved_tokens = 0
        monkeypatch.setattr(self.scheduler.view, "reserved_tokens", lambda _key: self.reserved_tokens)
        monkeypatch.setattr(self.scheduler.view, "requests_of_key", self.running.count)
        monkeypatch.setattr(self.scheduler.view, "workers_of_key", lambda key: ["w1"] if key in self.running else [])
        self.reports: list[Any] = []
        self.submitted: list[RequestKey] = []
        self.reserved: list[RequestKey] = []
        self.resumed = 0
        self.limits = RateLimiter()
        self.admission = KeyAdmission(
            self.loop,
            self.barrier,
            self.scheduler,
            InternalErrors(),
            self.limits,
            TokenBudgets(),
            lambda key, limits: self.reports.append((key, limits)),
            lambda _key: None,
            self._resume,
        )

    def send(self, _peer: str, message: Ping) -> None:
        self.pings.append(message.number)

    def _resume(self) -> None:
        self.resumed += 1

    def admit(self, key: RequestKey, caller: Caller | None) -> None:
        self.admission.admit(key, caller, lambda: self._submit(key, caller))

    def reserve(self, call: RequestKey, caller: Caller | None) -> None:
        self.admission.reserve(call, caller, lambda: self.reserved.append(call))

    def come(self, key: RequestKey, caller: Caller | None, reservation: RequestKey) -> None:
        """A reserved request arrives."""
        self.admission.admit(key, caller, lambda: self._submit(key, caller), reservation)

    def _submit(self, key: RequestKey, caller: Caller | None) -> None:
        self.submitted.append(key)
        if caller is not None:
            self.running.append(caller.key)

    def reported(self, *ended: str) -> None:
        """The worker answers its pings, after it has reported these requests' ends."""
        for name in ended:
            self.running.remove(name)
        for number in self.pings:
            self.barrier.pong("w1", number)
        self.pings.clear()

    def refusals(self) -> list[tuple[str, int, Code]]:
        effects = self.scheduler.effects()
        return [
            (effect.peer, effect.message.number, effect.message.failure.code)
            for effect in effects
            if isinstance(effect, SendMessage) and isinstance(effect.message, Refused)
        ]
