"""Each report counts once, in usage, metrics, limits and budgets alike, and the next supervisor goes on from the journal."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.caller import LimitStatus
from protocol.messages.metrics import DURATION_BUCKETS, EndedRequest, FailedRequests, RequestSeries, RequestsObserved
from protocol.messages.usage import UsageRow, total
from protocol.messages.work import AnswerLost
from supervisor.usage import journal as journal_module
from tests.supervisor.usage.counting_supervisor import CALLER, DAY, NOON, OUTCOME, CountingSupervisor, end


@pytest.fixture
def supervisor() -> Iterator[CountingSupervisor]:
    made = CountingSupervisor()
    yield made
    made.loop.close()


def observed(serial: int, *failures: FailedRequests) -> RequestsObserved:
    buckets = [1, *[0] * len(DURATION_BUCKETS)]
    return RequestsObserved([RequestSeries("chat", "openai", 200, "", "", 0.1, buckets)], list(failures), serial)


def test_an_answer_counts_everywhere_once(supervisor: CountingSupervisor) -> None:
    supervisor.limits.accept(CALLER, 7.0)
    for _ in range(2):
        supervisor.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    (row,) = supervisor.accounting.unwritten
    assert row == UsageRow(DAY, "ci", "m", 1, 10, 4, 3, 0.5)
    assert supervisor.metrics.key_tokens.values == {("ci", "in"): 10, ("ci", "out"): 3}
    assert supervisor.metrics.generated_tokens.values == {("m",): 3}
    tokens = supervisor.limits.rate_limits(CALLER, 7.0).tokens
    assert tokens is not None
    assert tokens.remaining == 1000 - 13
    day, _ = supervisor.budgets.statuses(CALLER, NOON)
    assert day is not None
    assert day.remaining == 5000 - 13


def test_a_stopped_attempt_counts_its_tokens_and_time_but_not_as_an_answer(supervisor: CountingSupervisor) -> None:
    supervisor.accounting.attempt_ended("w1", end(1, code="cancelled", tokens=2, prompt_tokens=9, seconds=0.25))
    assert supervisor.accounting.unwritten == [UsageRow(DAY, "ci", "m", 0, 9, 0, 2, 0.25)]
    assert supervisor.metrics.prompt_tokens.values == {("m",): 9}


def test_a_list_in_pieces_is_one_request(supervisor: CountingSupervisor) -> None:
    for serial, more in ((1, True), (2, True), (3, False)):
        supervisor.accounting.attempt_ended("w1", end(serial, outcome=OUTCOME, more=more))
    (row,) = supervisor.accounting.unwritten
    assert (row.requests, row.prompt_tokens) == (1, 30)


def test_an_answer_that_never_came_and_is_made_again_counts_once(supervisor: CountingSupervisor) -> None:
    supervisor.limits.accept(CALLER, 7.0)
    first = end(1, outcome=OUTCOME)
    supervisor.accounting.attempt_ended("w1", first)
    supervisor.accounting.take_back(first.key)
    supervisor.accounting.take_back(first.key)
    assert supervisor.killed().counted() == supervisor.counted(), "the next supervisor knows it"
    supervisor.accounting.attempt_ended("w2", end(1, attempt=2, outcome=OUTCOME))
    (row,) = supervisor.accounting.unwritten
    assert row == UsageRow(DAY, "ci", "m", 1, 10, 4, 3, 1.0), "only the time of the engine counts twice"
    tokens, (day, _) = supervisor.limits.rate_limits(CALLER, 7.0).tokens, supervisor.budgets.statuses(CALLER, NOON)
    assert tokens is not None
    assert day is not None
    assert (tokens.remaining, day.remaining) == (1000 - 13, 5000 - 13)


def test_a_read_costs_nothing(supervisor: CountingSupervisor) -> None:
    supervisor.accounting.attempt_ended("w1", end(0))
    assert supervisor.accounting.unwritten == []


def test_a_lost_stream_counts_what_its_client_got(supervisor: CountingSupervisor) -> None:
    supervisor.accounting.answer_lost("g1", AnswerLost("m", 5, CALLER))
    supervisor.accounting.answer_lost("g1", AnswerLost("m", 5))
    assert supervisor.accounting.unwritten == [
        UsageRow(DAY, "", "m", output_tokens=5),
        UsageRow(DAY, "ci", "m", output_tokens=5),
    ]


def test_an_end_whose_answer_was_lost_counts_as_its_failure(supervisor: CountingSupervisor) -> None:
    ended = end(1, outcome=OUTCOME)
    supervisor.accounting.attempt_ended("w1", ended)
    lost = AnswerLost("m", 2, CALLER, ended.number, ended.attempt)
    supervisor.accounting.answer_lost(ended.gateway, lost)
    supervisor.accounting.requests_observed("g1", observed(1, FailedRequests("ci", "m", "worker_gone", 1)))
    (row,) = supervisor.killed().accounting.unwritten
    assert row == UsageRow(DAY, "ci", "m", 1, output_tokens=2, engine_seconds=row.engine_seconds, failures=row.failures)


def test_failures_are_requests_unless_their_answer_was_counted(supervisor: CountingSupervisor) -> None:
    supervisor.accounting.requests_observed("g1", observed(1, FailedRequests("ci", "alias", "cancelled", 3, 1)))
    supervisor.accounting.requests_observed("g1", observed(1, FailedRequests("ci", "alias", "cancelled", 3, 1)))
    supervisor.accounting.requests_observed("g2", observed(1, FailedRequests("ci", "invented", "no such code", 1)))
    assert supervisor.accounting.unwritten == [
        UsageRow(DAY, "ci", "", 1, failures={"other": 1}),
        UsageRow(DAY, "ci", "m", 2, failures={"cancelled": 3}),
    ]
    assert supervisor.metrics.http_requests.total == 2


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_next_supervisor_goes_on_where_this_one_was(supervisor: CountingSupervisor, checkpoint: bool) -> None:
    supervisor.limits.accept(CALLER, 7.0)
    supervisor.accounting.limits_changed("ci")
    supervisor.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    supervisor.accounting.answer_lost("g1", AnswerLost("m", 5, CALLER))
    if checkpoint:
        supervisor.metrics.model_loaded("m", 1.0)
        supervisor.accounting.checkpoint()
    supervisor.accounting.requests_observed("g1", observed(1, FailedRequests("ci", "m", "timeout", 1)))
    supervisor.accounting.attempt_ended("w1", end(3, outcome=OUTCOME))
    successor = supervisor.killed()
    assert successor.counted() == supervisor.counted()
    assert successor.counters.former == {"malformed": 2}
    before = successor.counted()
    successor.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    successor.accounting.attempt_ended("w1", end(3, outcome=OUTCOME))
    successor.accounting.requests_observed("g1", observed(1, FailedRequests("ci", "m", "timeout", 1)))
    assert successor.counted() == before, "each was counted before"
    successor.accounting.attempt_ended("w1", end(2, outcome=OUTCOME))
    assert (
        total(successor.accounting.unwritten).output_tokens == total(supervisor.accounting.unwritten).output_tokens + 3
    )


def test_a_batch_that_is_being_written_is_the_same_for_the_next_supervisor(supervisor: CountingSupervisor) -> None:
    supervisor.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    batch = supervisor.accounting.next_batch()
    supervisor.accounting.attempt_ended("w1", end(2, outcome=OUTCOME))
    successor = supervisor.killed()
    assert successor.accounting.next_batch() == batch
    assert batch is not None
    successor.accounting.batch_written(batch.number)
    last = successor.killed()
    following = last.accounting.next_batch()
    assert following is not None
    assert (following.server, following.number, following.rows) == (batch.server, 2, batch.rows)


def test_what_is_kept_takes_bounded_memory(supervisor: CountingSupervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_MAX_BYTES", 10_000)
    for serial in range(1, 400):
        supervisor.accounting.attempt_ended("w1", end(serial, outcome=OUTCOME))
        if serial % 20 == 0:
            supervisor.accounting.checkpoint()
            assert os.fstat(supervisor.held.descriptor).st_size < 30_000
    assert supervisor.killed().counted() == supervisor.counted()


def test_a_journal_that_cannot_be_used_is_begun_again(supervisor: CountingSupervisor) -> None:
    supervisor.accounting.attempt_ended("w1", end(1, outcome=OUTCOME))
    descriptor = supervisor.held.descriptor
    os.pwrite(descriptor, b"\xff" * os.fstat(descriptor).st_size, 0)
    successor = supervisor.killed()
    assert successor.accounting.unwritten == []
    successor.accounting.attempt_ended("w1", end(2, outcome=OUTCOME))
    assert successor.killed().counted() == successor.counted()


@given(st.lists(st.sampled_from(["end", "again", "lost", "failed", "checkpoint", "batch", "killed"]), max_size=40))
def test_any_history_of_supervisors_counts_like_one_that_lives(events: list[str]) -> None:
    living, mortal, serial = CountingSupervisor(), CountingSupervisor(), 0
    try:
        for event in events:
            serial += event != "again"
            for each in (living, mortal):
                if event in ("end", "again"):
                    each.accounting.attempt_ended("w1", end(max(1, serial), outcome=OUTCOME))
                elif event == "lost":
                    each.accounting.answer_lost("g1", AnswerLost("m", 5, CALLER))
                elif event == "failed":
                    each.accounting.requests_observed("g1", observed(serial, FailedRequests("ci", "m", "timeout", 1)))
                elif event == "checkpoint":
                    each.accounting.checkpoint()
                elif event == "batch" and (batch := each.accounting.next_batch()) is not None:
                    each.accounting.batch_written(batch.number)
            if event == "killed":
                mortal = mortal.killed()
        assert mortal.counted() == living.counted()
    finally:
        living.loop.close()
        mortal.loop.close()


def test_the_limits_of_a_minute_are_restored_by_the_common_clock(supervisor: CountingSupervisor) -> None:
    for _ in range(60):
        supervisor.limits.accept(CALLER, 7.0)
    supervisor.accounting.limits_changed("ci")
    limits = supervisor.killed().limits
    assert limits.refusal(CALLER, 0, 7.0) is not None
    assert limits.rate_limits(CALLER, 37.0).requests == LimitStatus(60, 30, 30.0)


def test_the_next_supervisor_knows_the_requests_that_ended_last(supervisor: CountingSupervisor) -> None:
    def report(serial: int) -> RequestsObserved:
        return RequestsObserved([], [], serial, [EndedRequest(f"r{serial}", NOON, 0.5, "chat", model="alias")])

    supervisor.accounting.requests_observed("g1", report(1))
    supervisor.accounting.checkpoint()
    supervisor.accounting.requests_observed("g1", report(2))
    successor = supervisor.killed()
    successor.accounting.requests_observed("g1", report(2))
    successor.accounting.requests_observed("g1", report(3))
    shown = successor.accounting.ended.by_number
    assert {number: each.id for number, each in shown.items()} == {"1": "r1", "2": "r2", "3": "r3"}
    assert {each.model for each in shown.values()} == {"m"}, "by the registered name"
    successor.loop.close()
