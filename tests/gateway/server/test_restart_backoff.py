"""gunicorn's master waits longer and longer while its workers die at their start, but replaces a worker that has served at once."""

from __future__ import annotations

import time

import pytest

from gateway.server import gunicorn_master
from gateway.server.gunicorn_master import GunicornMaster
from gateway.server.restart_backoff import EARLY_S, MAX_PAUSE_S, RestartBackoff


def test_workers_that_die_at_their_start_are_forked_more_and_more_seldom() -> None:
    backoff, now, taken = RestartBackoff(), 100.0, []
    for pid in range(10):
        backoff.started(pid, now)
        taken.append(backoff.ended(pid, now))
        assert backoff.left(now) == pytest.approx(taken[-1])
        now += taken[-1]
        assert backoff.left(now) == pytest.approx(0.0)
    assert taken == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[MAX_PAUSE_S] * 3]


def test_one_that_cannot_be_forked_counts_too() -> None:
    backoff = RestartBackoff()
    assert [backoff.failed(0.0) for _ in range(3)] == [0.0, 0.1, 0.2]


def test_a_worker_that_has_served_is_replaced_at_once() -> None:
    backoff = RestartBackoff()
    for _ in range(5):
        backoff.failed(0.0)
    backoff.started(7, 10.0)
    assert backoff.ended(7, 10.0 + EARLY_S) == 0.0
    assert not backoff.left(10.0 + EARLY_S)
    assert backoff.failed(20.0) == 0.0, "and the count starts again"


def test_two_that_die_together_count_twice() -> None:
    backoff = RestartBackoff()
    for pid in (1, 2):
        backoff.started(pid, 0.0)
    assert [backoff.ended(pid, 0.5) for pid in (1, 2)] == [0.0, 0.1]
    assert backoff.left(0.5) == pytest.approx(0.1)


@pytest.mark.parametrize(("retiring", "lines"), [(False, 1), (True, 0)])
def test_workers_that_were_told_to_end_do_not_count_as_failures(
    monkeypatch: pytest.MonkeyPatch, *, retiring: bool, lines: int
) -> None:
    logged: list[str] = []
    logger = type("Logger", (), {"error": lambda _self, event, **_: logged.append(event)})()
    monkeypatch.setattr(gunicorn_master.logs, "get_logger", lambda: logger)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    master = GunicornMaster.__new__(GunicornMaster)
    master._retiring, master._backoff = retiring, RestartBackoff()
    for pid in (1, 2):
        master._backoff.started(pid, 0.0)
    for pid in (1, 2):
        master.worker_ended(pid)
    assert len(logged) == lines
