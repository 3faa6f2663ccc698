"""Requests that killed an engine: what is refused afterwards, to whom, and for how long; and what still counts against the model."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.messages.caller import Caller
from protocol.messages.work import SubmitRequest
from supervisor.scheduler.crash_record import MAX_CRASHES, MAX_REMEMBERED, REMEMBERED_S, CrashRecord, RequestOrigin


def request(client: str, digest: str, *, keyed: bool = True) -> SubmitRequest:
    caller = Caller(client) if keyed else None
    return SubmitRequest(
        1, 1, "a", "completions", "label", caller=caller, address="" if keyed else client, digest=digest
    )


def record(*deaths: tuple[str, str]) -> CrashRecord:
    """Deaths of the model ``a`` by clients and digests, ten seconds apart."""
    found = CrashRecord()
    for turn, (client, digest) in enumerate(deaths):
        found.note("a", [RequestOrigin(client, digest)], 10.0 * turn)
    return found


def test_a_repetition_is_refused_as_the_clients_mistake_until_it_is_forgotten() -> None:
    deaths = record(("k", "d"))
    failure = deaths.refusal("a", request("k", "d"), 60.0)
    assert failure is not None
    assert (failure.http_status, failure.final, failure.model) == (400, True, "a")
    assert "60 s ago" in failure.message
    assert "540 s" in failure.message
    assert deaths.refusal("a", request("k", "d"), REMEMBERED_S) is None


@pytest.mark.parametrize("other", [("a", "k", "e"), ("a", "l", "d"), ("b", "k", "d")], ids=str)
def test_other_requests_clients_and_models_are_served(other: tuple[str, str, str]) -> None:
    model, client, digest = other
    assert record(("k", "d")).refusal(model, request(client, digest), 1.0) is None


def test_a_client_with_several_must_wait_and_others_need_not() -> None:
    deaths = record(*(("k", f"d{number}") for number in range(MAX_CRASHES)))
    failure = deaths.refusal("a", request("k", "new"), 100.0)
    assert failure is not None
    assert (failure.code, failure.http_status) == (Code.RATE_LIMITED, 429)
    assert failure.retry_after == REMEMBERED_S - 100.0, "until the first is forgotten"
    assert "API key k" in failure.message
    assert deaths.refusal("a", request("other", "new"), 100.0) is None
    assert deaths.refusal("b", request("k", "new"), 100.0) is None
    assert deaths.refusal("a", request("k", "new"), REMEMBERED_S) is None


def test_without_keys_the_address_counts() -> None:
    deaths = record(*(("192.0.2.7", f"d{number}") for number in range(MAX_CRASHES)))
    failure = deaths.refusal("a", request("192.0.2.7", "new", keyed=False), 30.0)
    assert failure is not None
    assert "the address 192.0.2.7" in failure.message
    assert deaths.refusal("a", request("192.0.2.8", "new", keyed=False), 30.0) is None


def test_an_explicit_load_forgets() -> None:
    deaths = record(("k", "d"))
    deaths.forget("b")
    assert deaths.refusal("a", request("k", "d"), 1.0) is not None
    deaths.forget("a")
    assert deaths.refusal("a", request("k", "d"), 1.0) is None


def test_a_client_counts_against_the_model_once() -> None:
    deaths = CrashRecord()
    counted = [deaths.note("a", [RequestOrigin("k", f"d{turn}")], turn) for turn in range(10)]
    assert counted == [True] + [False] * 9
    assert deaths.note("a", [RequestOrigin("l", "d")], 11.0), "another one may have met the model's own fault"
    assert deaths.note("b", [RequestOrigin("k", "d")], 11.0)
    assert deaths.note("a", [RequestOrigin("k", "d")], 11.0 + REMEMBERED_S)


def test_none_of_several_requests_is_noted() -> None:
    deaths = CrashRecord()
    assert not deaths.note("a", [RequestOrigin("k", "d"), RequestOrigin("k", "e")], 0.0), "one client's"
    assert deaths.note("a", [RequestOrigin("k", "d"), RequestOrigin("l", "e")], 0.0), "whose is not known"
    assert deaths.refusal("a", request("k", "d"), 1.0) is None


def several(*clients: str) -> list[RequestOrigin]:
    return [RequestOrigin(client, "d") for client in clients]


def test_a_client_that_is_a_suspect_beside_others_again_and_again_counts_against_the_model_once() -> None:
    """It hangs up before its request would be tried again alone."""
    deaths = CrashRecord()
    counted = [deaths.note("a", several("attacker", f"victim{turn}"), turn) for turn in range(10)]
    assert counted == [True] + [False] * 9
    assert not deaths.note("a", several("victim3", "new"), 11.0)
    assert deaths.note("a", several("another", "client"), 11.0)
    assert deaths.note("b", several("attacker", "victim0"), 11.0)
    assert deaths.note("a", several("victim0"), 11.0), "it may have met the model's own fault"
    assert deaths.refusal("a", request("attacker", "d"), 11.0) is None, "it is not known to be the reason"
    assert deaths.note("a", several("attacker", "victim0"), 12.0 + REMEMBERED_S)
    deaths.forget("a")
    assert deaths.note("a", several("attacker", "victim0"), 13.0 + REMEMBERED_S)


def test_a_request_of_which_nothing_is_known_counts_against_the_model_alone() -> None:
    deaths = CrashRecord()
    assert deaths.note("a", [RequestOrigin()], 0.0)
    assert deaths.refusal("a", request("", "", keyed=False), 1.0) is None


def test_it_is_bounded() -> None:
    deaths = CrashRecord()
    for number in range(MAX_REMEMBERED + 1):
        deaths.note("a", [RequestOrigin(f"k{number}", "d")], 0.0)
    assert deaths.refusal("a", request("k0", "d"), 0.0) is None
    assert deaths.refusal("a", request("k1", "d"), 0.0) is not None
