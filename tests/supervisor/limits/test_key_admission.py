"""Requests of keys with limits: which are admitted at once, which wait for the workers' reports, and when they are cancelled."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.messages.caller import Caller
from supervisor.bus.worker_barrier import BARRIER_TIMEOUT_S
from tests.supervisor.limits.admission_harness import FIRST, SECOND, Admission


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
