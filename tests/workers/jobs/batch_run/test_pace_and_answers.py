"""How many lines are sent at once, and what answers mean."""

from __future__ import annotations

import pytest

from workers.jobs.batch_run.answers import MAX_TRIES, LineAnswer, judge
from workers.jobs.batch_run.pace import FIRST_PAUSE_S, LONGEST_PAUSE_S, MAX_AT_ONCE, PROBE_S, Pace
from workers.jobs.batch_run.waits import LOG_PAUSE_S, WaitLog


def error(status: int, code: str, retry_after: float = 0.0, *, final: bool = False) -> LineAnswer:
    return LineAnswer(status, b'{"error":{"code":"%s"}}' % code.encode(), retry_after=retry_after, final=final)


@pytest.mark.parametrize("slots", [1, 4])
def test_the_number_follows_the_free_slots(slots: int) -> None:
    pace, now, most = Pace(), 0.0, 0
    for _ in range(200):
        while pace.is_open(now):
            pace.sent()
            if pace.running > slots:
                pace.refused(now)
        most = max(most, pace.running)
        now += 0.1
        if pace.running:
            pace.answered(now)
    assert most == slots


def test_a_busy_model_is_left_alone_for_longer_and_longer() -> None:
    pace, now, pauses = Pace(), 0.0, []
    for _ in range(8):
        pace.sent()
        pace.refused(now)
        began = now
        while not pace.is_open(now):
            now += FIRST_PAUSE_S / 4
        pauses.append(now - began)
    assert pauses == sorted(pauses)
    assert pauses[0] == FIRST_PAUSE_S
    assert pauses[-1] == LONGEST_PAUSE_S


def test_it_grows_to_a_bound() -> None:
    pace = Pace()
    for _ in range(3 * MAX_AT_ONCE):
        pace.sent()
        pace.answered(PROBE_S)
    assert pace.most == MAX_AT_ONCE


@pytest.mark.parametrize(
    ("answer", "tries", "expected"),
    [
        (LineAnswer(200, b"{}"), 0, "done"),
        (error(400, "invalid_request"), 0, "done"),
        (error(401, "unauthorized"), 0, "done"),
        (error(503, "batch_waits", 1.0), 0, "busy"),
        (error(529, "overloaded", 3.0), 9, "again"),
        (error(503, "drained", 10.0), 9, "again"),
        (error(429, "rate_limit_exceeded", 2.0), 9, "again"),
        (error(429, "insufficient_quota", 50_000.0), 9, "again"),
        (error(500, "backend_died"), 0, "counts"),
        (error(500, "backend_died"), MAX_TRIES - 1, "done"),
        (error(500, "backend_died", final=True), 0, "done"),
        (error(503, "load_failed", 1.0), 0, "counts"),
        (error(501, "unsupported_operation", final=True), 0, "done"),
        (LineAnswer(502, b"<html>"), 0, "counts"),
        (LineAnswer(0), 9, "again"),
    ],
)
def test_what_an_answer_means(answer: LineAnswer, tries: int, expected: str) -> None:
    verdict = judge(answer, tries)
    assert verdict.done == (expected == "done")
    assert verdict.busy == (expected == "busy")
    assert verdict.counts == (expected == "counts")
    assert verdict.pause <= 60.0
    assert bool(verdict.pause) == (expected in ("again", "counts"))


def test_why_a_line_is_sent_again() -> None:
    assert LineAnswer(0).why == "the connection to the server broke"
    assert LineAnswer(502, b"<html>").why == "the server answered 502"
    assert LineAnswer(503, b'{"error":{"message":"the model is busy"}}').why == "the model is busy"
    assert len(LineAnswer(503, b'{"error":{"message":"%s"}}' % (b"x" * 999)).why) == 201


def test_the_log_has_a_new_reason_not_each_refusal() -> None:
    log = WaitLog()
    assert log.news({"a": "no slot is free", "b": "30 a minute: wait 9 s"}, 0.0) == ["a", "b"]
    for second in range(1, 59):
        assert (
            log.news({"b": f"30 a minute: wait {second} s"} if second % 2 else {"a": "no slot is free"}, second) == []
        )
    assert log.news({"a": "the model is loaded"}, 59.0) == [], "not more often than once a minute"
    assert log.news({"a": "the model is loaded", "b": "30 a minute: wait 1 s"}, 60.0) == ["a"]
    assert log.news({}, 60.0 + LOG_PAUSE_S) == []
    assert log.news({"a": "the model is loaded"}, 61.0 + LOG_PAUSE_S) == ["a"], "it ran meanwhile"
