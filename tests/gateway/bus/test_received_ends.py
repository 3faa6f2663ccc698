"""What a gateway tells about complete answers whose workers may not have reported them, and about its own latest reports."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.requests.received_ends import MAX_ENDS
from protocol.config.api_keys import ApiKey
from protocol.failures import Code, Failure
from protocol.messages.events import Event, EventKind, Outcome
from protocol.messages.metrics import RequestsObserved
from protocol.messages.peers import Ping, Welcome, WorkerGone
from protocol.messages.recovery import Recovered
from protocol.messages.work import AnswersReceived, AttemptEnded
from protocol.wire import envelope
from tests.gateway.bus.session_harness import SessionHarness

GONE = Failure(Code.WORKER_GONE, "killed")
OUTCOME = Outcome(prompt_tokens=3, output_tokens=2, model="m", serial=7)
KEY = ApiKey(name="ci", sha256="0" * 64)


@pytest.fixture
def harness(tmp_path: Path) -> SessionHarness:
    made = SessionHarness(tmp_path)
    made.welcome()
    return made


def answered(
    harness: SessionHarness,
    worker: str = "w1",
    outcome: Outcome = OUTCOME,
    *,
    key: ApiKey | None = None,
    more: bool = False,
) -> tuple[str, int, int]:
    """Let a request be answered; return its attempt."""
    exchange = harness.start(key=key, more=more)
    end = Event(exchange.number, 1, 0, EventKind.DONE, 0, envelope.pack_payload(outcome))
    harness.handlers.on_events([end], worker)
    return "g1", exchange.number, 1


def reports(harness: SessionHarness) -> list[AnswersReceived]:
    return [each for each in harness.bus.sent if isinstance(each, AnswersReceived)]


def end_of(attempt: tuple[str, int, int], **fields: object) -> AttemptEnded:
    return msgspec.structs.replace(AttemptEnded(*attempt, outcome=OUTCOME, serial=7, model="m"), **fields)


def test_the_answers_of_a_worker_that_is_gone_are_reported_as_it_would_have_done(harness: SessionHarness) -> None:
    one, two = answered(harness), answered(harness, key=KEY, more=True)
    answered(harness, "w2")
    answered(harness, outcome=Outcome(output_tokens=2))
    harness.handlers.on_message(WorkerGone("w1", GONE), b"")
    assert reports(harness) == [AnswersReceived("w1", [end_of(one), end_of(two, api_key="ci", more=True)])]


def test_a_worker_that_answered_nothing_is_not_reported(harness: SessionHarness) -> None:
    answered(harness, "w2")
    harness.handlers.on_message(WorkerGone("w1", GONE), b"")
    assert reports(harness) == []


def test_the_next_supervisor_gets_the_answers_of_a_worker_that_ended_with_the_last_one(harness: SessionHarness) -> None:
    attempt = answered(harness)
    answered(harness, "w2")
    harness.end_supervisor()
    harness.session.connect()
    harness.welcome()
    harness.handlers.on_message(Recovered(["w2"]), b"")
    assert reports(harness) == [AnswersReceived("w1", [end_of(attempt)])]


def test_only_the_latest_answers_are_kept(harness: SessionHarness) -> None:
    attempts = [answered(harness) for _ in range(MAX_ENDS + 3)]
    harness.handlers.on_message(WorkerGone("w1", GONE), b"")
    (report,) = reports(harness)
    assert [each.key for each in report.ends] == attempts[3:]


def test_the_next_supervisor_gets_the_latest_reports_of_requests_again(harness: SessionHarness) -> None:
    harness.session.request_counts.observe("/v1/models", 200, 0.1)
    harness.handlers.on_message(Ping(1), b"")
    (report,) = [each for each in harness.bus.sent if isinstance(each, RequestsObserved)]
    harness.end_supervisor()
    harness.session.connect()
    harness.handlers.on_message(Welcome("b1", 2), b"")
    assert [each for each in harness.bus.sent if isinstance(each, RequestsObserved)] == [report]
