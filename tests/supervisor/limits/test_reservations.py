"""A reservation: what counts against the limits of a key before its request comes."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from tests.supervisor.limits.admission_harness import CALL, FIRST, OTHER_CALL, SECOND, Admission


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
