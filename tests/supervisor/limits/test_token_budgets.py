"""Budgets of a day and a month: what is used, when they turn, and what the headers say."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from protocol.failures import Code
from protocol.messages.caller import Caller, LimitStatus
from supervisor.limits.token_budgets import SpentTokens, TokenBudgets


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOON = at("2031-05-30T12:00:00")
CALLER = Caller("ci", tokens_per_day=100, tokens_per_month=1000)


@pytest.mark.parametrize(
    ("spent", "caller", "code", "wait"),
    [
        (99, CALLER, None, 0.0),
        (100, CALLER, Code.QUOTA, 12 * 3600.0),
        (1000, CALLER, Code.QUOTA, 36 * 3600.0),
        (1000, Caller("ci", tokens_per_month=1000), Code.QUOTA, 36 * 3600.0),
        (1000, Caller("ci"), None, 0.0),
        (1000, Caller("other", tokens_per_day=100), None, 0.0),
    ],
    ids=["one is left", "of the day", "of both", "of the month", "no budget", "another key"],
)
def test_a_key_without_tokens_waits_until_the_day_or_the_month_ends(
    spent: int, caller: Caller, code: Code | None, wait: float
) -> None:
    budgets = TokenBudgets()
    budgets.spend("ci", spent, NOON)
    failure = budgets.refusal(caller, NOON)
    assert (failure.code if failure else None, failure.retry_after if failure else 0.0) == (code, wait)
    if failure is not None:
        assert failure.http_status == 429
        assert "ci" in failure.message


def test_a_day_and_a_month_turn_at_midnight_in_utc() -> None:
    budgets = TokenBudgets()
    budgets.spend("ci", 600, at("2031-05-30T23:59:59"))
    assert budgets.statuses(CALLER, at("2031-05-31T00:00:00")) == (
        LimitStatus(100, 100, 86_400.0),
        LimitStatus(1000, 400, 86_400.0),
    )
    budgets.spend("ci", 10, at("2031-05-31T00:00:01"))
    assert budgets.statuses(CALLER, at("2031-06-01T00:00:00")) == (
        LimitStatus(100, 100, 86_400.0),
        LimitStatus(1000, 1000, 30 * 86_400.0),
    )


def test_the_tokens_that_running_requests_may_generate_are_kept_for_them() -> None:
    budgets = TokenBudgets()
    budgets.spend("ci", 40, NOON)
    assert budgets.refusal(CALLER, NOON, reserved=59) is None
    failure = budgets.refusal(CALLER, NOON, reserved=60)
    assert failure is not None
    assert (failure.code, failure.retry_after) == (Code.RATE_LIMITED, 1.0)
    assert "running requests" in failure.message


def test_what_earlier_servers_have_written_counts_beside_what_this_one_has_counted() -> None:
    budgets = TokenBudgets()
    budgets.spend("ci", 10, NOON)
    budgets.add_stored([("ci", 20, 300), ("other", 1, 2)], NOON)
    assert budgets.statuses(CALLER, NOON) == (LimitStatus(100, 70, 43_200.0), LimitStatus(1000, 690, 129_600.0))


def test_the_next_supervisor_knows_what_was_used() -> None:
    budgets, successor = TokenBudgets(), TokenBudgets()
    budgets.spend("ci", 10, NOON)
    budgets.spend("", 10, NOON)
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(budgets.state()), type=dict[str, SpentTokens])
    successor.restore(state)
    assert successor.statuses(CALLER, NOON) == budgets.statuses(CALLER, NOON)
    assert list(successor.state()) == ["ci"], "without a key nothing is limited"
