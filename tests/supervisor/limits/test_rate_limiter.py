"""Limits of keys: exact to one request, for many keys and clients."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from protocol.failures import Code
from protocol.messages.caller import Caller, LimitStatus, RateLimits
from supervisor.limits import rate_limiter
from supervisor.limits.rate_limiter import RateLimiter


def sent(limits: RateLimiter, caller: Caller, now: float = 0.0, running: int = 0) -> bool:
    """Send a request; return whether it was accepted."""
    if limits.refusal(caller, running, now) is not None:
        return False
    limits.accept(caller, now)
    return True


def test_a_hundred_keys_with_32_clients_each_get_exactly_their_limit() -> None:
    noise = random.Random(5)
    callers = [Caller(f"key{number}", requests_per_minute=number + 1) for number in range(100)]
    clients = [caller for caller in callers for _ in range(32)] * 4
    noise.shuffle(clients)
    limits = RateLimiter()
    accepted: Counter[str] = Counter()
    for caller in clients:
        accepted[caller.key] += sent(limits, caller)
    assert [accepted[caller.key] for caller in callers] == [min(number + 1, 128) for number in range(100)]
    # A minute later in one step, then nothing more at the same moment.
    again = Counter({caller.key: sum(sent(limits, caller, 60.0) for _ in range(128)) for caller in callers})
    assert [again[caller.key] for caller in callers] == [number + 1 for number in range(100)]


@pytest.mark.parametrize(
    ("fields", "running", "wait"),
    [
        ({"requests_per_minute": 1}, 0, 60.0),
        ({"concurrent": 2}, 2, 1.0),
        ({"concurrent": 2}, 5, 1.0),
    ],
)
def test_a_refusal_says_which_limit_and_when_to_come_again(fields: dict[str, int], running: int, wait: float) -> None:
    limits, caller = RateLimiter(), Caller("ci", **fields)
    if not running:
        assert sent(limits, caller)
    failure = limits.refusal(caller, running, 0.0)
    assert failure is not None
    assert (failure.code, failure.http_status) == (Code.RATE_LIMITED, 429)
    assert failure.retry_after == pytest.approx(wait)
    assert "ci" in failure.message


def test_a_refused_request_costs_nothing() -> None:
    limits, caller = RateLimiter(), Caller("ci", requests_per_minute=1)
    assert sent(limits, caller)
    assert not any(sent(limits, caller, now) for now in range(60))
    assert sent(limits, caller, 60.0)


def test_tokens_that_were_used_refuse_the_next_request() -> None:
    limits, caller = RateLimiter(), Caller("ci", tokens_per_minute=100)
    assert sent(limits, caller)
    limits.use_tokens(caller.key, 99, 0.0)
    assert sent(limits, caller), "one token is left, and nothing is known of the next request"
    limits.use_tokens(caller.key, 100, 0.0)
    failure = limits.refusal(caller, 0, 0.0)
    assert failure is not None
    assert failure.retry_after == pytest.approx(60.0)
    assert "100 tokens a minute" in failure.message
    assert sent(limits, caller, 60.0)


def test_only_the_last_of_several_requests_at_once_may_go_beyond_the_limit() -> None:
    """The tokens that running requests may use are reserved; at their end, the used tokens count instead."""
    limits, caller = RateLimiter(), Caller("ci", tokens_per_minute=100)
    assert limits.refusal(caller, 0, 0.0) is None
    assert limits.refusal(caller, 1, 0.0, reserved=99) is None
    failure = limits.refusal(caller, 2, 0.0, reserved=100)
    assert failure is not None
    assert (failure.code, failure.retry_after) == (Code.RATE_LIMITED, 1.0)
    assert "running requests" in failure.message
    limits.use_tokens(caller.key, 10, 0.0)
    assert limits.refusal(caller, 0, 0.0, reserved=0) is None


def test_keys_do_not_share_limits() -> None:
    limits = RateLimiter()
    assert [sent(limits, Caller(name, requests_per_minute=1)) for name in "abab"] == [True, True, False, False]


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (Caller("ci"), RateLimits()),
        (Caller("ci", requests_per_minute=60), RateLimits(LimitStatus(60, 59, 1.0), None)),
        (Caller("ci", tokens_per_minute=600), RateLimits(None, LimitStatus(600, 0, 70.0))),
    ],
)
def test_what_is_left(caller: Caller, expected: RateLimits) -> None:
    limits = RateLimiter()
    limits.accept(caller, 0.0)
    limits.use_tokens(caller.key, 700, 0.0)
    assert limits.rate_limits(caller, 0.0) == expected


def test_a_limit_that_was_changed_or_removed_counts_at_once() -> None:
    limits = RateLimiter()
    assert [sent(limits, Caller("ci", requests_per_minute=n)) for n in (1, 1, 2, 2)] == [True, False, True, False]
    assert sent(limits, Caller("ci"))


def test_keys_that_have_used_up_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "MAX_IDLE_KEYS", 10)
    limits: Any = RateLimiter()
    for number in range(10):
        sent(limits, Caller(f"key{number}", requests_per_minute=1))
    sent(limits, Caller("eleventh", requests_per_minute=1), 1.0)
    assert len(limits._usage) == 11, "all of them have used something"
    sent(limits, Caller("twelfth", requests_per_minute=1), 3600.0)
    assert set(limits._usage) == {"twelfth"}
