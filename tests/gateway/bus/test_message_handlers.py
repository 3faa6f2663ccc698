"""The supervisor's messages: an exception only fails its own request and is reported once; ends of workers and of the supervisor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.bus.pending_requests import CUT_OFF_ELSEWHERE_S, CUT_OFF_TIMEOUT_S
from gateway.bus.session import SupervisorSession
from gateway.http.request_context import RequestContext
from gateway.internal_errors import INTERNAL_ERRORS
from gateway.requests.exchange import RequestExchange
from gateway.requests.inference_request import InferenceRequest
from gateway.requests.spool import Spool
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.events import Event, EventKind
from protocol.messages.health import GetHealth
from protocol.messages.metrics import CollectMetrics, MetricsCollected
from protocol.messages.peers import Ping, Pong, WorkerGone, WorkerUp
from protocol.messages.work import Granted, GrantedAttempt, Refused, SubmitRequest
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from tests.gateway.app_client import SilentBus


class OpenedSession:
    """A session on a fake bus, and its handlers."""

    def __init__(self, folder: Path, node: str = HEAD) -> None:
        self.bus = SilentBus()
        self.session = SupervisorSession("g1", Settings(), Spool(folder, "g1", 1 << 20), node)
        self.handlers = self.session.open(self.bus)
        self.session.connect()
        self.session.welcomed(1)

    def start(self, label: str = "r.1") -> RequestExchange:
        """Send a request to the supervisor."""
        return self.session.start_exchange(InferenceRequest("chat", "tiny", b"{}", label), RequestContext(label))

    def grant(self, *exchanges: RequestExchange) -> None:
        """Deliver a message that grants these requests to ``w1``."""
        grants = [GrantedAttempt(each.number, each.attempt, "w1", "tiny") for each in exchanges]
        self.handlers.on_message(Granted(grants), b"")

    def ping(self, number: int) -> list[Any]:
        """Return what was sent for a ping."""
        self.bus.sent.clear()
        self.handlers.on_message(Ping(number), b"")
        return self.bus.sent

    def fail_once(self) -> None:
        """Deliver a message whose handler raises."""
        self.handlers.on_message(Granted([None]), b"")  # type: ignore[list-item]


@pytest.fixture
def opened(tmp_path: Path) -> OpenedSession:
    return OpenedSession(tmp_path)


def test_a_pong_reports_the_exceptions_since_the_one_before(opened: OpenedSession) -> None:
    assert opened.ping(1) == [Pong(1)]
    opened.fail_once()
    opened.fail_once()
    INTERNAL_ERRORS.log(RuntimeError("of a request"))
    assert opened.ping(2) == [Pong(2, errors=3)]
    assert opened.ping(3) == [Pong(3)]


def test_what_a_pong_that_was_not_sent_would_have_reported_is_reported_by_the_next(opened: OpenedSession) -> None:
    opened.fail_once()
    opened.bus.full = True
    assert opened.ping(1) == []
    opened.bus.full = False
    assert opened.ping(2) == [Pong(2, errors=1)]
    assert opened.ping(3) == [Pong(3)]


@pytest.mark.parametrize(
    ("message", "answer"), [(Ping(7), Pong(7)), (CollectMetrics(7), MetricsCollected(7))], ids=["ping", "collection"]
)
def test_requests_are_reported_once_and_before_the_answer(
    opened: OpenedSession, message: msgspec.Struct, answer: msgspec.Struct
) -> None:
    counts = opened.session.request_counts
    counts.observe("/v1/models", 200, 0.02)
    opened.bus.full = True
    opened.handlers.on_message(message, b"")
    counts.observe("/v1/models", 200, 0.02)
    opened.bus.full = False
    report = counts.unreported()
    assert report is not None
    assert [sum(each.buckets) for each in report.series] == [2]
    opened.handlers.on_message(message, b"")
    opened.handlers.on_message(message, b"")
    assert opened.bus.sent == [report, answer, answer]
    assert opened.ping(8) == [Pong(8)], "a full outbox is not an internal error"


def test_a_second_attempt_says_why_there_is_one(opened: OpenedSession) -> None:
    exchange = opened.start()
    opened.handlers.on_message(Refused(exchange.number, 1, Failure(Code.RETURNED, "not now")), b"")
    asked = [(each.attempt, each.retry_reason) for each in opened.bus.sent if isinstance(each, SubmitRequest)]
    assert asked == [(1, ""), (2, "returned")]


@pytest.mark.parametrize("problem", [Failure(Code.OVERLOADED, "full").raised(), RuntimeError("ours")], ids=repr)
def test_a_ping_that_cannot_be_answered_fails_no_request_of_its_number(
    opened: OpenedSession, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    def fail(*_: object) -> None:
        raise problem

    exchange = opened.start()
    monkeypatch.setattr(opened.bus, "send", fail)
    opened.ping(exchange.number)
    assert exchange.failure is None


def test_an_exception_in_one_grant_fails_its_request_alone_and_is_logged_once(
    opened: OpenedSession, records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = RequestExchange.granted

    def fail_for_one(self: RequestExchange, worker: str, model: str, attempt: int) -> None:
        if self.label == "bad":
            raise RuntimeError("ours")
        granted(self, worker, model, attempt)

    logs.configure("gateway", "info", "json")
    monkeypatch.setattr(RequestExchange, "granted", fail_for_one)
    first, bad, last = (opened.start(label) for label in ("first", "bad", "last"))
    opened.grant(first, bad, last)
    assert (first.worker, first.failure, last.worker, last.failure) == ("w1", None, "w1", None)
    assert bad.failure is not None
    assert bad.failure.code is Code.INTERNAL
    assert [(line["event"], line["request_id"]) for line in records] == [("internal error", "bad")]
    assert opened.ping(9) == [Pong(9, errors=1)]


def test_an_exception_in_one_event_fails_its_request_alone_and_is_logged_once(
    opened: OpenedSession, records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    take_event = RequestExchange.take_event

    def raise_for_one(self: RequestExchange, event: Event, worker: str) -> None:
        if self.label == "bad":
            raise RuntimeError("ours")
        take_event(self, event, worker)

    logs.configure("gateway", "info", "json")
    monkeypatch.setattr(RequestExchange, "take_event", raise_for_one)
    first, bad, last = exchanges = [opened.start(label) for label in ("first", "bad", "last")]
    opened.grant(*exchanges)
    opened.handlers.on_events([Event(each.number, 1, 0, EventKind.DELTA, 1, b"text") for each in exchanges], "w1")
    assert (first.inbox.take(), last.inbox.take()) == (b"text", b"text")
    assert bad.failure is not None
    assert bad.failure.code is Code.INTERNAL
    assert [(line["event"], line["request_id"]) for line in records] == [("internal error", "bad")]
    assert opened.ping(9) == [Pong(9, errors=1)]


def test_an_event_of_an_unknown_kind_or_request_does_no_harm(opened: OpenedSession) -> None:
    exchange = opened.start()
    opened.grant(exchange)
    unknown = Event(exchange.number, 1, 0, 99, 7, b"x"), Event(exchange.number + 1, 1, 0, EventKind.DELTA, 1, b"x")
    opened.handlers.on_events([*unknown, Event(exchange.number, 1, 1, EventKind.DELTA, 1, b"text")], "w1")
    assert (exchange.failure, exchange.inbox.take()) == (None, b"text")
    assert opened.ping(1) == [Pong(1)]


@pytest.mark.parametrize("first", ["worker", "supervisor"])
def test_without_a_supervisor_an_ended_connection_fails_the_requests_of_its_worker(
    opened: OpenedSession, first: str
) -> None:
    def end_worker() -> None:
        opened.bus.living.remove("e1")
        opened.handlers.on_disconnected("e1")

    for worker in ("w1", "w2"):
        opened.handlers.on_message(WorkerUp(worker, f"e{worker[1:]}"), b"")
    exchange, other = opened.start(), opened.start()
    opened.grant(exchange)
    other.granted("w2", "tiny", 1)
    steps = [end_worker, opened.session.keeper_ended]
    for step in steps if first == "worker" else reversed(steps):
        assert exchange.failure is None
        step()
    assert exchange.failure is not None
    assert exchange.failure.code is Code.WORKER_GONE
    assert other.failure is None


@pytest.mark.parametrize(
    ("node", "waits"), [(HEAD, [CUT_OFF_TIMEOUT_S]), ("edge1", [CUT_OFF_ELSEWHERE_S, CUT_OFF_TIMEOUT_S])]
)
def test_a_broken_connection_to_another_node_is_told_when_the_supervisor_has_said_nothing_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node: str, waits: list[float]
) -> None:
    opened = OpenedSession(tmp_path, node)
    later: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(opened.bus, "call_later", lambda *timer: later.append(timer))
    opened.handlers.on_message(WorkerUp("w1", "tcp://10.0.0.1:7000", "gpu1"), b"")
    begun, waiting, again, other, answered = exchanges = [opened.start(label) for label in ("b", "w", "a", "o", "t")]
    opened.grant(begun, waiting, again, answered)
    other.granted("w2", "tiny", 1)
    begun.inbox.taken = answered.inbox.taken = True
    opened.handlers.on_disconnected("tcp://10.0.0.1:7000")
    assert [each.failure for each in exchanges] == [None] * 5
    assert [each.attempt for each in exchanges] == [1] * 5, "the supervisor might choose the same worker"
    for exchange in (again, answered):
        exchange.fail(Failure(Code.NODE_LOST, "the supervisor says so"))
    assert (again.attempt, again.failure) == (2, None)
    assert [seconds for seconds, _ in later] == waits
    later[0][1]()
    assert begun.failure is not None
    assert (begun.failure.code, "node gpu1" in begun.failure.message) == (Code.LOST, True)
    assert answered.failure is not None
    assert answered.failure.code is Code.NODE_LOST
    later[-1][1]()
    assert [each.attempt for each in exchanges] == [1, 2, 2, 1, 1]
    assert [each.failure for each in (waiting, again, other)] == [None, None, None]


@pytest.mark.parametrize("end", ["worker", "supervisor", "grace"])
def test_an_exception_while_one_request_fails_keeps_no_other_from_its_failure(
    opened: OpenedSession, records: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    end_of = RequestExchange._end

    def raise_for_one(self: RequestExchange, failure: Failure) -> None:
        if self.label == "bad":
            raise RuntimeError("ours")
        end_of(self, failure)

    logs.configure("gateway", "info", "json")
    errors = INTERNAL_ERRORS.count
    exchanges = [opened.start(label) for label in ("first", "bad", "last")]
    if end == "worker":
        opened.grant(*exchanges)
        for exchange in exchanges:
            exchange.inbox.taken = True
    monkeypatch.setattr(RequestExchange, "_end", raise_for_one)
    if end == "worker":
        opened.handlers.on_message(WorkerGone("w1", Failure(Code.WORKER_GONE, "it ended")), b"")
        code = Code.WORKER_GONE
    elif end == "supervisor":
        opened.session.keeper_ended()
        code = Code.SUPERVISOR_LOST
    else:
        opened.session.fail_everything()
        code = Code.DRAINING
    codes = [exchange.failure and exchange.failure.code for exchange in exchanges]
    assert codes == [code, Code.INTERNAL, code]
    assert [line["request_id"] for line in records if line["event"] == "internal error"] == ["bad"]
    assert INTERNAL_ERRORS.count == errors + 1


def test_a_call_whose_reader_cannot_be_told_of_its_failure_keeps_no_other_from_its_own(opened: OpenedSession) -> None:
    def fail() -> None:
        raise RuntimeError("ours")

    calls = [opened.session.start_call({}, GetHealth) for _ in range(2)]
    calls[0].on_failure = fail
    opened.session.keeper_ended()
    for call in calls:
        with pytest.raises(LemonbusError):
            call.next(0.0)
