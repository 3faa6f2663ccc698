"""Pauses after failed loads, and the breaker that opens after too many deaths."""

from __future__ import annotations

from protocol.failures import Code, Failure
from supervisor.scheduler.backoff import MAX_FAILED_CHECKS, Backoff, BackoffPolicy, FailedChecks

DEATH = Failure(Code.BACKEND_DIED, "SIGKILL", model="a")


def test_deaths_older_than_the_window_are_forgotten() -> None:
    backoff = Backoff(BackoffPolicy(deaths=3, window=10.0))
    assert all(backoff.died(DEATH, at * 5.0) for at in range(20))


def test_the_breaker_names_its_reason_and_how_long() -> None:
    backoff = Backoff(BackoffPolicy(deaths=1))
    assert backoff.died(DEATH, 0.0)
    assert not backoff.died(DEATH, 1.0)
    refusal = backoff.refusal("a", 11.0)
    assert refusal.code is Code.BREAKER_OPEN
    assert refusal.retry_after == 50.0
    assert "SIGKILL" in refusal.message


def test_during_the_pause_a_failure_that_no_waiting_cures_stays_what_it_is() -> None:
    backoff = Backoff(BackoffPolicy())
    absent = Failure(Code.CHECKPOINT_NOT_FOUND, "no such repository", model="a", param="checkpoint")
    backoff.load_failed(absent, 0.0)
    assert backoff.pause(0.5) == 0.5
    assert backoff.refusal("a", 0.5) == absent


def test_a_model_counts_as_recently_failed_for_a_while_or_until_it_loads() -> None:
    backoff = Backoff(BackoffPolicy())
    backoff.load_failed(DEATH, 0.0)
    assert backoff.recently_failed(599.0)
    assert not backoff.recently_failed(600.0)
    backoff.ready()
    assert not backoff.recently_failed(1.0)


def test_the_deaths_that_opened_the_breaker_are_reported() -> None:
    backoff = Backoff(BackoffPolicy(deaths=1))
    assert backoff.died(DEATH, 0.0)
    assert backoff.reported_failures == 0
    assert not backoff.died(DEATH, 1.0)
    assert backoff.reported_failures == 2
    backoff.ready()
    assert backoff.reported_failures == 0


def test_failed_checks_are_reported_for_a_while_and_are_few() -> None:
    failed = FailedChecks(BackoffPolicy(most=60.0))
    failed.note("a", DEATH, 0.0)
    failed.note("b", DEATH, 300.0)
    failed.note("b", DEATH, 301.0)
    assert {name: each.failures for name, each in failed.recent(301.0).items()} == {"a": 1, "b": 2}
    assert list(failed.recent(700.0)) == ["b"]
    failed.forget("b")
    assert failed.recent(700.0) == {}
    for number in range(MAX_FAILED_CHECKS + 1):
        failed.note(f"m{number}", DEATH, 800.0)
    assert len(failed.recent(800.0)) == MAX_FAILED_CHECKS
