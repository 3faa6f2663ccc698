"""Requests of keys with limits: which are admitted at once, which wait for the workers' reports, and when they are cancelled."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.peers import Ping
from protocol.messages.work import Refused
from protocol.runtime.loop import Loop
from supervisor.bus.worker_barrier import BARRIER_TIMEOUT_S, WorkerBarrier
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


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Admission:
    return Admission(monkeypatch)


@pytest.mark.parametrize("caller", [None, Caller("ci"), Caller("ci", models=["a"])])
def test_without_limits_nothing_is_counted_or_reported(gate: Admission, caller: Caller | None) -> None:
    gate.admit(FIRST, caller)
    assert (gate.submitted, gate.reports, gate.pings) == ([FIRST], [], [])


def test_a_retry_is_part_of_its_request(gate: Admission) -> None:
    caller = Caller("ci", requests_per_minute=1, concurrent=1)
    gate.admit(FIRST, caller)
    again = FIRST._replace(attempt=2)
    gate.admit(again, caller)
    assert gate.submitted == [FIRST, again]


def test_a_request_over_the_limit_is_refused_and_told_what_is_left(gate: Admission) -> None:
    caller = Caller("ci", requests_per_minute=1)
    gate.admit(FIRST, caller)
    gate.admit(SECOND, caller)
    assert gate.submitted == [FIRST]
    assert gate.refusals() == [("g2", 1, Code.RATE_LIMITED)]
    assert [(key, limits.requests.remaining) for key, limits in gate.reports] == [(FIRST, 0), (SECOND, 0)]


def test_a_client_that_has_its_answer_is_not_refused_for_a_report_that_is_late(gate: Admission) -> None:
    caller = Caller("ci", concurrent=1)
    gate.admit(FIRST, caller)
    gate.admit(SECOND, caller)
    assert gate.submitted == [FIRST], "it is held"
    gate.reported("ci")
    assert (gate.submitted, gate.refusals(), gate.resumed) == ([FIRST, SECOND], [], 1)


def test_one_request_too_many_is_refused_when_the_worker_has_reported_nothing(gate: Admission) -> None:
    caller = Caller("ci", concurrent=1)
    gate.admit(FIRST, caller)
    gate.admit(SECOND, caller)
    gate.reported()
    assert (gate.submitted, gate.refusals()) == ([FIRST], [("g2", 1, Code.RATE_LIMITED)])


def test_tokens_of_an_answer_count_before_the_next_request(gate: Admission) -> None:
    caller = Caller("ci", tokens_per_minute=100)
    gate.admit(FIRST, caller)
    gate.admit(SECOND, caller)
    gate.limits.use_tokens("ci", 100, gate.time)
    gate.reported("ci")
    assert (gate.submitted, gate.refusals()) == ([FIRST], [("g2", 1, Code.RATE_LIMITED)])


def test_tokens_that_running_requests_may_generate_are_kept_for_them(gate: Admission) -> None:
    caller = Caller("ci", tokens_per_minute=100, reserved_tokens=60)
    gate.admit(FIRST, caller)
    gate.reserved_tokens = 100
    gate.admit(SECOND, caller)
    gate.reported()
    assert (gate.submitted, gate.refusals()) == ([FIRST], [("g2", 1, Code.RATE_LIMITED)])
    gate.reserved_tokens = 60
    third = SECOND._replace(number=2)
    gate.admit(third, caller)
    gate.reported()
    assert gate.submitted == [FIRST, third]


def test_a_worker_that_does_not_answer_delays_a_decision_a_moment_at_most(gate: Admission) -> None:
    caller = Caller("ci", concurrent=1)
    gate.admit(FIRST, caller)
    gate.admit(SECOND, caller)
    gate.time = BARRIER_TIMEOUT_S + 0.01
    gate.loop.run_once(0.0)
    assert gate.refusals() == [("g2", 1, Code.RATE_LIMITED)]


@pytest.mark.parametrize("by", ["client", "gateway"])
def test_a_held_request_of_a_client_that_is_gone_is_never_submitted(gate: Admission, by: str) -> None:
    caller = Caller("ci", concurrent=1)
    gate.admit(FIRST, caller)
    gate.admit(SECOND, caller)
    if by == "client":
        gate.admission.cancelled(SECOND)
    else:
        gate.admission.gateway_gone("g2")
    gate.reported("ci")
    assert (gate.submitted, gate.refusals(), gate.resumed) == ([FIRST], [], 0)


def test_an_exception_answers_the_held_request(gate: Admission) -> None:
    caller = Caller("ci", concurrent=1)
    gate.admit(FIRST, caller)

    def broken() -> None:
        raise RuntimeError("a bug")

    gate.admission.admit(SECOND, caller, broken)
    gate.reported("ci")
    assert gate.refusals() == [("g2", 1, Code.INTERNAL)]


def test_a_reserved_request_is_counted_once(gate: Admission) -> None:
    caller = Caller("ci", requests_per_minute=2, concurrent=2)
    gate.reserve(CALL, caller)
    gate.come(FIRST, caller, CALL)
    gate.admit(SECOND, caller)
    assert (gate.reserved, gate.submitted, gate.refusals()) == ([CALL], [FIRST, SECOND], [])
    assert [(key, limits.requests.remaining) for key, limits in gate.reports] == [(CALL, 1), (FIRST, 1), (SECOND, 0)]


@pytest.mark.parametrize("limits", [{"requests_per_minute": 1}, {"concurrent": 1}])
def test_a_reservation_counts_against_the_limits_before_its_request_comes(
    gate: Admission, limits: dict[str, int]
) -> None:
    caller = Caller("ci", **limits)
    gate.reserve(CALL, caller)
    gate.reserve(OTHER_CALL, caller)
    gate.admit(SECOND, caller)
    assert (gate.reserved, gate.submitted) == ([CALL], [])
    assert gate.refusals() == [("g2", 8, Code.RATE_LIMITED), ("g2", 1, Code.RATE_LIMITED)]


def test_the_tokens_of_a_reservation_are_kept_until_its_request_comes(gate: Admission) -> None:
    caller = Caller("ci", tokens_per_minute=100, reserved_tokens=100)
    gate.reserve(CALL, caller)
    gate.admit(SECOND, Caller("other", tokens_per_minute=100))
    gate.admit(SECOND, caller)
    assert (gate.submitted, gate.refusals()) == ([SECOND], [("g2", 1, Code.RATE_LIMITED)])
    gate.come(FIRST, caller, CALL)
    gate.admit(SECOND, caller)
    gate.reported("ci")
    assert gate.submitted == [SECOND, FIRST, SECOND], "the scheduler has its tokens now"


@pytest.mark.parametrize("by", ["client", "gateway"])
def test_a_reservation_ends_without_its_request(gate: Admission, by: str) -> None:
    caller = Caller("ci", concurrent=1)
    gate.reserve(CALL, caller)
    if by == "client":
        gate.admission.cancelled(CALL)
    else:
        gate.admission.gateway_gone("g1")
    gate.admit(SECOND, caller)
    assert gate.submitted == [SECOND]


def test_what_was_held_on_a_lost_connection_waits_until_it_is_asked_for_again(gate: Admission) -> None:
    caller, again = Caller("ci", concurrent=1), RequestKey("g1", 2, 1)
    gate.admit(FIRST, caller)
    gate.reserve(CALL, caller)
    gate.admit(again, caller)
    gate.admission.gateway_reconnected("g1")
    gate.reported("ci")
    assert (gate.reserved, gate.submitted) == ([], [FIRST])
    gate.admit(again, caller)
    assert gate.submitted == [FIRST, again]


def test_a_reservation_that_is_made_again_on_a_new_connection_is_counted_once(gate: Admission) -> None:
    caller = Caller("ci", requests_per_minute=2)
    gate.reserve(CALL, caller)
    gate.admission.gateway_reconnected("g1")
    gate.reserve(CALL, caller)
    gate.come(FIRST, caller, CALL)
    gate.admit(SECOND, caller)
    assert (gate.submitted, gate.refusals()) == ([FIRST, SECOND], [])


def test_a_request_that_was_admitted_before_is_not_counted_again(gate: Admission) -> None:
    caller = Caller("ci", requests_per_minute=1, concurrent=1)
    gate.admit(FIRST, caller)
    gate.admission.admit(FIRST, caller, lambda: gate.submitted.append(FIRST), admitted=True)
    assert (gate.submitted, gate.refusals(), len(gate.reports)) == ([FIRST, FIRST], [], 2)


def test_a_reservation_that_is_not_known_saves_no_request_from_its_limits(gate: Admission) -> None:
    caller = Caller("ci", requests_per_minute=1)
    gate.come(FIRST, caller, CALL)
    gate.come(SECOND, caller, CALL)
    assert (gate.submitted, gate.refusals()) == ([FIRST], [("g2", 1, Code.RATE_LIMITED)])


def test_a_reservation_is_of_one_key(gate: Admission) -> None:
    gate.reserve(CALL, Caller("other", requests_per_minute=1))
    limited = Caller("ci", requests_per_minute=1)
    gate.admit(FIRST, limited)
    gate.come(SECOND, limited, CALL)
    assert gate.refusals() == [("g2", 1, Code.RATE_LIMITED)]


def test_a_reservation_of_a_request_that_was_admitted_before_counts_no_longer(gate: Admission) -> None:
    caller = Caller("ci", concurrent=1)
    call = FIRST._replace(number=7)
    gate.reserve(call, caller)
    gate.admission.admit(FIRST, caller, lambda: gate.submitted.append(FIRST), call, admitted=True)
    gate.admit(SECOND, caller)
    assert gate.submitted == [FIRST, SECOND], "only what the scheduler has counts"


@pytest.mark.parametrize("caller", [None, Caller("k"), Caller("k", requests_per_minute=5)])
@pytest.mark.parametrize("end", ["it comes", "its client leaves", "its gateway ends", "its gateway asks again"])
def test_a_reserved_request_is_still_to_come_until_it_comes_or_ends(
    gate: Admission, caller: Caller | None, end: str
) -> None:
    gate.reserve(CALL, caller)
    assert gate.admission.reserved == 1
    match end:
        case "it comes":
            gate.come(FIRST, caller, CALL)
        case "its client leaves":
            gate.admission.cancelled(CALL)
        case "its gateway ends":
            gate.admission.gateway_gone(CALL.gateway)
        case _:
            gate.admission.gateway_reconnected(CALL.gateway)
    assert gate.admission.reserved == 0
