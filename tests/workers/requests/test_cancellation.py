"""How a worker finds out whether its engine has stopped working on a cancelled request."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.config.settings import Settings
from protocol.ids import RequestKey
from protocol.messages.work import Run
from protocol.models.recipes import IdleCheck
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.exchange import BufferedResponse
from workers.engine.process_usage import ProcessUsage
from workers.requests.attempt import Attempt
from workers.requests.cancellation import (
    MAX_POLL_INTERVAL_S,
    MAX_UNREADABLE_S,
    MIN_POLL_INTERVAL_S,
    STILL_BUSY_NOTICE_S,
    Cancellations,
    next_poll_interval,
)
from workers.requests.slot_probe import SlotProbe


class FakeSession:
    """An engine that answers each slot probe as the test says, and its backend and connections."""

    def __init__(self) -> None:
        self.backend = self.pool = self.engine = self
        self.open = True
        self.settings = Settings()
        self.answers_while_busy = True
        self.silence = self.settings.silence
        self.busy_status = 200
        self.answer: tuple[int, bytes] = (200, b"0")
        self.asked = 0
        self.unusable = ""

    def idle_check(self, _endpoint: str) -> str:
        return IdleCheck.SLOTS

    def busy(self) -> EngineRequest:
        return EngineRequest("GET", "/slots")

    def processing(self, body: bytes) -> int:
        return int(body)

    def send(self, _request: EngineRequest, handler: BufferedResponse) -> None:
        self.asked += 1
        handler.began(self.answer[0])
        handler.data(self.answer[1])
        handler.ended()

    def end_silent(self, reason: str, *, works: bool) -> None:
        assert not works
        self.unusable = reason

    def usage(self) -> ProcessUsage:
        return ProcessUsage()

    def end_useless(self) -> None:
        self.unusable = "useless"

    def end_unusable(self, reason: str) -> None:
        self.unusable = reason


class Fixture:
    """One attempt that runs, and its cancellation."""

    def __init__(self) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self.session: Any = FakeSession()
        self.stopped: list[str] = []
        self.attempts: dict[RequestKey, Attempt] = {}
        bus: Any = SimpleNamespace(send=lambda _message: None)
        self.cancellations = Cancellations(
            self.loop,
            bus,
            self.session,
            SlotProbe(self.loop, self.session),
            self.attempts,
            lambda _attempt, code: self.stopped.append(code),
        )
        self.attempt = self.add_attempt(1)

    def add_attempt(self, number: int) -> Attempt:
        owner: Any = SimpleNamespace(advanced=lambda *_: None)
        backend: Any = SimpleNamespace(alias="m", reported_build="", build="", clock_shift=0)
        attempt = Attempt(Run("g", number, 1, "m", "chat/completions", "r"), b"", backend, owner, self.loop.now)
        attempt.start(EngineRequest("POST", "/v1/chat/completions", streamed=True))
        attempt.began(200)
        attempt.exchange = SimpleNamespace(connection=None, cancel=lambda: None)  # type: ignore[assignment]
        self.attempts[attempt.key] = attempt
        return attempt

    def use_connection(self) -> None:
        exchange: Any = SimpleNamespace(
            connection=object(), headers={}, cancel=lambda: None, read_immediately=lambda: None
        )
        self.attempt.exchange = exchange

    def wait(self, seconds: float) -> None:
        end = self.time + seconds
        while self.time < end:
            self.time += MIN_POLL_INTERVAL_S
            self.loop.run_once(0.0)


@pytest.fixture
def fixture() -> Iterator[Fixture]:
    fixture = Fixture()
    yield fixture
    fixture.loop.close()


def test_the_grant_ends_when_no_slot_is_busy(fixture: Fixture) -> None:
    fixture.session.answer = (200, b"1")
    fixture.cancellations.stop(fixture.attempt, "cancelled")
    fixture.wait(1.0)
    assert fixture.stopped == []
    fixture.session.answer = (200, b"0")
    fixture.wait(2 * MAX_POLL_INTERVAL_S)
    assert fixture.stopped == ["cancelled"]


def test_a_busy_engine_is_asked_less_and_less_often(fixture: Fixture) -> None:
    fixture.session.answer = (200, b"1")
    fixture.cancellations.stop(fixture.attempt, "cancelled")
    fixture.wait(10.0)
    assert fixture.session.asked < 100
    assert not fixture.session.unusable


@pytest.mark.parametrize("answer", [(500, b"0"), (501, b""), (200, b"no number"), (0, b"")])
def test_an_engine_that_does_not_tell_is_ended_in_time(fixture: Fixture, answer: tuple[int, bytes]) -> None:
    fixture.session.answer = answer
    fixture.cancellations.stop(fixture.attempt, "cancelled")
    fixture.wait(MAX_UNREADABLE_S / 2)
    assert not fixture.session.unusable
    fixture.wait(MAX_UNREADABLE_S)
    assert "/slots" in fixture.session.unusable
    asked = fixture.session.asked
    fixture.wait(1.0)
    assert fixture.session.asked == asked, "it is asked no more"
    assert fixture.stopped == [], "the engine's exit ends the grant"


def test_a_few_unreadable_answers_are_forgiven(fixture: Fixture) -> None:
    fixture.cancellations.stop(fixture.attempt, "cancelled")
    for _ in range(4):
        fixture.session.answer = (500, b"")
        fixture.wait(MAX_UNREADABLE_S / 2)
        fixture.session.answer = (200, b"1")
        fixture.wait(2 * MAX_POLL_INTERVAL_S)
    assert not fixture.session.unusable


def test_an_exception_of_ours_loses_no_slot(
    fixture: Fixture, records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_body: bytes) -> int:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(fixture.session, "processing", fail)
        logs.configure("worker", "info", "json")  # to render a traceback for people takes far longer
        fixture.cancellations.stop(fixture.attempt, "cancelled")
        fixture.wait(MAX_UNREADABLE_S / 2)
    assert fixture.loop.errors > 0
    assert any("a bug" in str(record) for record in records)
    fixture.wait(2 * MAX_POLL_INTERVAL_S)
    assert fixture.stopped == ["cancelled"]


def test_the_interval_grows_with_the_time_waited() -> None:
    assert next_poll_interval(0.0) == MIN_POLL_INTERVAL_S
    assert next_poll_interval(1.0) == pytest.approx(0.1)
    assert next_poll_interval(60.0) == MAX_POLL_INTERVAL_S


def test_an_engine_that_does_not_answer_at_all_is_ended(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixture.session, "send", lambda *_: None)
    fixture.cancellations.stop(fixture.attempt, "cancelled")
    fixture.wait(fixture.session.silence - 1.0)
    assert not fixture.session.unusable
    fixture.wait(2.0)
    assert "did not answer /slots within 60 s" in fixture.session.unusable


def test_an_engine_that_announces_its_begin_is_not_asked_before(fixture: Fixture) -> None:
    """Until then, the request has no slot, so the engine would look idle."""
    attempt = fixture.attempt
    attempt.answer.request = attempt.request._replace(announced=True)
    attempt.answer.status = 0
    fixture.use_connection()
    fixture.cancellations.stop(attempt, "cancelled")
    fixture.wait(fixture.session.silence - 1.0)
    assert (fixture.stopped, fixture.session.asked, fixture.session.unusable) == ([], 0, "")
    attempt.began(200)
    fixture.cancellations.advanced(attempt)
    fixture.wait(1.0)
    assert fixture.stopped == ["cancelled"]


def test_an_engine_that_works_for_nobody_is_ended_after_the_silence(fixture: Fixture) -> None:
    fixture.session.answer = (200, b"1")
    other = fixture.add_attempt(2)
    fixture.cancellations.stop(fixture.attempt, "cancelled")
    fixture.wait(2 * fixture.session.silence)
    assert not fixture.session.unusable, "it works for another client"
    fixture.cancellations.stop(other, "cancelled")
    fixture.wait(STILL_BUSY_NOTICE_S + MAX_POLL_INTERVAL_S)
    assert fixture.session.unusable == "useless"


def test_a_cancelled_request_that_has_ended_is_kept_no_longer(fixture: Fixture) -> None:
    fixture.cancellations.stop(fixture.attempt, "cancelled")
    fixture.wait(STILL_BUSY_NOTICE_S + MAX_POLL_INTERVAL_S)
    assert fixture.stopped == ["cancelled"]
    del fixture.attempts[fixture.attempt.key]
    ended = weakref.ref(fixture.attempt)
    del fixture.attempt
    gc.collect()
    assert ended() is None
