"""gunicorn's master waits longer and longer while its workers die at their start, but replaces a worker that has served at once."""

from __future__ import annotations

import time

import pytest

from gateway.server import gunicorn_master
from gateway.server.gunicorn_master import GunicornMaster
from gateway.server.restart_pauses import EARLY_S, MAX_PAUSE_S, RestartPauses


def test_workers_that_die_at_their_start_are_forked_more_and_more_seldom() -> None:
    pauses, now, taken = RestartPauses(), 100.0, []
    for pid in range(10):
        pauses.started(pid, now)
        taken.append(pauses.ended(pid, now))
        assert pauses.left(now) == pytest.approx(taken[-1])
        now += taken[-1]
        assert pauses.left(now) == pytest.approx(0.0)
    assert taken == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[MAX_PAUSE_S] * 3]


def test_one_that_cannot_be_forked_counts_too() -> None:
    pauses = RestartPauses()
    assert [pauses.failed(0.0) for _ in range(3)] == [0.0, 0.1, 0.2]


def test_a_worker_that_has_served_is_replaced_at_once() -> None:
    pauses = RestartPauses()
    for _ in range(5):
        pauses.failed(0.0)
    pauses.started(7, 10.0)
    assert pauses.ended(7, 10.0 + EARLY_S) == 0.0
    assert not pauses.left(10.0 + EARLY_S)
    assert pauses.failed(20.0) == 0.0, "and the count starts again"


def test_two_that_die_together_count_twice() -> None:
    pauses = RestartPauses()
    for pid in (1, 2):
        pauses.started(pid, 0.0)
    assert [pauses.ended(pid, 0.5) for pid in (1, 2)] == [0.0, 0.1]
    assert pauses.left(0.5) == pytest.approx(0.1)


@pytest.mark.parametrize(("retiring", "lines"), [(False, 1), (True, 0)])
def test_workers_that_were_told_to_end_do_not_count_as_failures(
    monkeypatch: pytest.MonkeyPatch, *, retiring: bool, lines: int
) -> None:
    logged: list[str] = []
    logger = type("Logger", (), {"error": lambda _self, event, **_: logged.append(event)})()
    monkeypatch.setattr(gunicorn_master.logs, "get_logger", lambda: logger)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    master = GunicornMaster.__new__(GunicornMaster)
    master._retiring, master._pauses = retiring, RestartPauses()
    for pid in (1, 2):
        master._pauses.started(pid, 0.0)
    for pid in (1, 2):
        master.worker_ended(pid)
    assert len(logged) == lines
