"""What a gateway sends to a supervisor that takes over: its snapshot, and everything that waits, once and in order."""

from __future__ import annotations

import time

import pytest

from gateway.bus import supervisor_connection
from gateway.requests.admission_states import AdmissionState
from protocol.config.api_keys import ApiKey
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.caller import Caller, KeyUsage, RateLimits
from protocol.messages.events import Event, EventKind
from protocol.messages.health import GetHealth
from protocol.messages.peers import Rejoin, WorkerUp
from protocol.messages.recovery import Recovered, RequestSnapshot
from protocol.messages.work import Cancel, Granted, GrantedAttempt, Refused, SubmitRequest
from tests.gateway.bus.session_harness import SessionHarness

KEY = ApiKey(name="team", sha256="0" * 64, concurrent=2)
LIMITED = Caller("team", concurrent=2)


def test_a_new_supervisor_learns_all_attempts_and_gets_those_without_a_worker_in_their_order(
    gateway: SessionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, granted, answered, ended, second = (gateway.start(f"r.{n}", KEY) for n in range(5))
    assert [again for _, _, again in gateway.submitted()] == [False] * 5
    call = gateway.session.start_call({}, GetHealth)
    gateway.grant(granted)
    gateway.deliver(answered, EventKind.DELTA, worker="w2")
    gateway.deliver(ended, EventKind.DELTA, EventKind.DONE)
    now = time.monotonic() + 5.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    gateway.end_supervisor()
    workers = {granted: "w1", answered: "w2"}
    expected = [
        RequestSnapshot(
            *(each.number, 1, now - each.since, workers.get(each, ""), LIMITED),
            label=each.label,
            endpoint="chat/completions",
            dialect="other",
        )
        for each in (first, granted, answered, second)
    ]
    assert gateway.bus.snapshots[-1].requests == expected
    assert gateway.submitted() == [(each.number, 1, True) for each in (first, second)]
    assert gateway.ages() == [now - first.since, now - second.since]
    assert gateway.bus.sent[-1] == GetHealth(call.number)
    assert 5.0 <= now - second.since <= now - first.since


def test_a_request_is_sent_once_if_a_supervisor_takes_over_while_its_body_is_written(
    gateway: SessionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = gateway.session.spool.keep

    def other_greenlets_run(body: bytes) -> str:
        gateway.end_supervisor()
        gateway.welcome()
        return keep(body)

    monkeypatch.setattr(gateway.session.spool, "keep", other_greenlets_run)
    exchange = gateway.start(body=b" " * (gateway.session.settings.spool_over + 1))
    assert gateway.submitted() == [(exchange.number, 1, False)]
    assert gateway.bus.sent[-1].spool == exchange.spool


def test_a_request_that_was_admitted_says_so_to_the_next_supervisor(gateway: SessionHarness) -> None:
    admitted, held = gateway.start(key=KEY), gateway.start(key=KEY)
    gateway.handlers.on_message(KeyUsage(admitted.number, 1, RateLimits()), b"")
    gateway.end_supervisor()
    sent = {each.number: each.admitted for each in gateway.bus.sent if isinstance(each, SubmitRequest)}
    assert sent == {admitted.number: True, held.number: False}


def test_what_arrives_meanwhile_waits_behind_the_older_and_carries_the_time_of_its_arrival(
    gateway: SessionHarness,
) -> None:
    old = [gateway.start() for _ in range(200)]
    gateway.end_supervisor()
    new = gateway.start()
    gateway.welcome()
    newest = gateway.start()
    assert len(gateway.submitted()) == 64, "one iteration of the loop sends a bounded number"
    while gateway.bus.callbacks:
        gateway.bus.iterate()
    assert gateway.submitted() == [(each.number, 1, True) for each in (*old, new, newest)]
    later = gateway.start()
    assert gateway.submitted()[-1] == (later.number, 1, False)


def test_one_iteration_sends_a_bounded_number_of_bytes(
    gateway: SessionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor_connection, "_SEND_BYTES", 1000)
    exchanges = [gateway.start(body=b" " * 400) for _ in range(10)]
    gateway.end_supervisor()
    seen = [len(gateway.submitted())]
    while gateway.bus.callbacks:
        gateway.bus.iterate()
        seen.append(len(gateway.submitted()))
    assert seen == [3, 6, 9, 10]
    assert [number for number, _, _ in gateway.submitted()] == [each.number for each in exchanges]


def test_what_was_cancelled_meanwhile_is_not_asked_again(gateway: SessionHarness) -> None:
    exchanges = [gateway.start() for _ in range(100)]
    exchanges[0].abandon(Code.CANCELLED)
    gateway.end_supervisor()
    exchanges[99].abandon(Code.CANCELLED)
    while gateway.bus.callbacks:
        gateway.bus.iterate()
    sent = [number for number, _, _ in gateway.submitted()]
    assert sent == [each.number for each in exchanges[1:99]]
    # The attempt whose request is on its way is cancelled after it.
    exchanges[1].abandon(Code.CANCELLED)
    assert gateway.bus.sent[-1] == Cancel("g1", exchanges[1].number, 1, Code.CANCELLED)
    gateway.welcome()
    gateway.session.supervisor_ended()
    assert [each.number for each in gateway.bus.snapshots[-1].requests] == sent[1:]


def test_an_attempt_that_fails_meanwhile_is_asked_once_with_its_new_number(gateway: SessionHarness) -> None:
    exchanges = [gateway.start() for _ in range(100)]
    gateway.end_supervisor()
    last = exchanges[-1]
    last.fail(Failure(Code.WORKER_GONE, "it ended"))
    while gateway.bus.callbacks:
        gateway.bus.iterate()
    assert [each for each in gateway.submitted() if each[0] == last.number] == [(last.number, 2, True)]


def test_a_connection_that_breaks_before_a_welcome_is_replaced_a_second_later(
    gateway: SessionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = gateway.start()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    gateway.end_supervisor()
    hellos = len(gateway.bus.snapshots)
    gateway.session.check_connection(now + 5)
    assert len(gateway.bus.snapshots) == hellos, "a supervisor that is slow gets one Hello"
    gateway.bus.broken = True
    gateway.session.check_connection(now)
    assert len(gateway.bus.snapshots) == hellos
    gateway.session.check_connection(now + 1)
    assert len(gateway.bus.snapshots) == hellos + 1
    assert gateway.submitted() == [(exchange.number, 1, True)] * 2
    gateway.welcome()
    gateway.session.check_connection(now + 100)
    assert len(gateway.bus.snapshots) == hellos + 1


def test_without_a_supervisor_that_listens_nothing_is_sent_and_it_is_looked_for(gateway: SessionHarness) -> None:
    gateway.bus.supervisor_pid = 0
    hellos = len(gateway.bus.snapshots)
    gateway.end_supervisor()
    waiting, cancelled = gateway.start(), gateway.start()
    cancelled.abandon(Code.CANCELLED)
    for _ in range(3):
        gateway.session.check_connection(time.monotonic() + 5)
        gateway.bus.iterate()
    assert (gateway.bus.sent, len(gateway.bus.snapshots)) == ([], hellos)
    gateway.bus.supervisor_pid = 2
    gateway.bus.iterate()
    assert gateway.submitted() == [(waiting.number, 1, True)]
    assert len(gateway.bus.snapshots) == hellos + 1


def test_the_number_of_requests_that_wait_is_bounded(gateway: SessionHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_connection, "MAX_WAITING", 3)
    gateway.bus.supervisor_pid = 0
    gateway.end_supervisor()
    for _ in range(3):
        gateway.start()
    with pytest.raises(LemonbusError) as refused:
        gateway.start()
    assert refused.value.failure.code is Code.OVERLOADED


def test_two_deaths_in_a_row_and_one_before_the_welcome(gateway: SessionHarness) -> None:
    exchange = gateway.start()
    for welcomed in (False, True, True):
        gateway.end_supervisor()
        gateway.bus.iterate()
        if welcomed:
            gateway.welcome()
            assert gateway.session.admission.state is AdmissionState.OPEN
        assert gateway.submitted() == [(exchange.number, 1, True)]
    gateway.deliver(exchange, EventKind.DELTA, EventKind.DONE)
    assert (exchange.inbox.take(), exchange.failure) == (b"text", None)


def test_what_the_supervisor_said_before_its_end_counts(gateway: SessionHarness) -> None:
    granted, refused = gateway.start(), gateway.start()
    gateway.bus.unread = [
        Granted([GrantedAttempt(granted.number, 1, "w1", "tiny")]),
        Refused(refused.number, 1, Failure(Code.MODEL_NOT_FOUND, "no such model")),
    ]
    gateway.end_supervisor()
    (known,) = gateway.bus.snapshots[-1].requests
    assert (known.number, known.attempt, known.worker) == (granted.number, 1, "w1")
    assert gateway.submitted() == []


def test_a_request_waits_no_more_for_the_limits_that_the_supervisor_has_not_said(gateway: SessionHarness) -> None:
    running, ended, waiting = (gateway.start(f"r.{n}", KEY) for n in range(3))
    gateway.grant(running)
    gateway.deliver(ended, EventKind.DONE)
    assert all(each.rate_limits_due for each in (running, ended, waiting))
    gateway.end_supervisor()
    assert not running.rate_limits_due
    assert not ended.rate_limits_due
    assert waiting.rate_limits_due, "the next supervisor says it with the grant"


@pytest.mark.parametrize("subscribed", [True, False])
def test_workers_that_ended_meanwhile_end_their_attempts_once_the_supervisor_has_recovered(
    gateway: SessionHarness, subscribed: bool
) -> None:
    for worker in ("w1", "w2") if subscribed else ("w1",):
        gateway.handlers.on_message(WorkerUp(worker, f"e{worker}"), b"")
    living, silent, begun = gateway.start(), gateway.start(), gateway.start()
    gateway.grant(living, "w1")
    gateway.grant(silent, "w2")
    gateway.deliver(begun, EventKind.DELTA, worker="w2")
    begun.inbox.take()
    gateway.bus.living.discard("ew2")
    gateway.handlers.on_disconnected("ew2")
    gateway.end_supervisor()
    gateway.handlers.on_disconnected("ew2")
    gateway.welcome()
    assert (silent.attempt, begun.failure) == (1, None), "no supervisor has said yet that the worker is gone"
    gateway.handlers.on_message(WorkerUp("w1", "ew1"), b"")
    gateway.handlers.on_message(Recovered(["w1"]), b"")
    assert (living.attempt, living.worker) == (1, "w1")
    assert (silent.attempt, silent.failure) == (2, None)
    assert begun.failure is not None
    assert begun.failure.code is Code.WORKER_GONE


@pytest.mark.parametrize(("nodes", "code"), [([], Code.NODE_LOST), (["gpu1"], Code.WORKER_GONE)])
def test_a_stream_of_a_node_that_was_lost_meanwhile_is_told_of_the_node(
    gateway: SessionHarness, nodes: list[str], code: Code
) -> None:
    gateway.handlers.on_message(WorkerUp("w1", "tcp://10.0.0.1:7000", "gpu1"), b"")
    silent, begun = gateway.start(), gateway.start()
    gateway.grant(silent)
    gateway.deliver(begun, EventKind.DELTA)
    begun.inbox.take()
    gateway.bus.living.discard("tcp://10.0.0.1:7000")
    gateway.end_supervisor()
    gateway.welcome()
    gateway.handlers.on_message(Recovered([], [*nodes, "gpu2"]), b"")
    assert (silent.attempt, silent.suspect, silent.failure) == (2, code is Code.WORKER_GONE, None)
    assert begun.failure is not None
    assert begun.failure.code is code
    assert ("node gpu1 was lost" in begun.failure.message) is (code is Code.NODE_LOST)


@pytest.mark.parametrize(
    ("kind", "seq", "text"),
    [
        (EventKind.DELTA, 2, "part of the answer was lost on the way"),
        (EventKind.DONE, 1, "the end of the answer was unreadable"),
    ],
)
@pytest.mark.parametrize("node", ["", "gpu1"])
def test_an_answer_that_was_damaged_on_its_way_names_the_node(
    gateway: SessionHarness, kind: EventKind, seq: int, text: str, node: str
) -> None:
    gateway.handlers.on_message(WorkerUp("w1", "tcp://10.0.0.1:7000", node), b"")
    begun = gateway.start()
    gateway.deliver(begun, EventKind.DELTA)
    begun.inbox.take()
    gateway.handlers.on_events([Event(begun.number, 1, seq, kind, 0, b"\xc1")], "w1")
    assert begun.failure is not None
    assert begun.failure.code is Code.LOST
    assert begun.failure.message == text + (f"; the model runs on node {node}" if node else "")


@pytest.mark.parametrize("more", [False, True])
def test_the_supervisor_hears_that_no_other_piece_of_a_list_will_come(gateway: SessionHarness, more: bool) -> None:
    ended = gateway.start(more=more)
    gateway.deliver(ended, EventKind.DELTA, EventKind.DONE)
    ended.abandon(Code.CANCELLED)
    cancels = [each for each in gateway.bus.sent if isinstance(each, Cancel)]
    assert cancels == ([Cancel("g1", ended.number, 1, Code.CANCELLED)] if more else [])


def test_a_new_supervisor_learns_that_another_piece_follows(gateway: SessionHarness) -> None:
    gateway.grant(gateway.start(more=True))
    gateway.end_supervisor()
    assert [each.more for each in gateway.bus.snapshots[-1].requests] == [True]


def test_a_gateway_that_was_given_up_asks_again_under_another_id_for_what_no_client_has_seen(
    gateway: SessionHarness,
) -> None:
    waiting, begun, seen, read = (gateway.start(f"r.{n}") for n in range(4))
    gateway.grant(begun)
    for exchange in (seen, read):
        gateway.deliver(exchange, EventKind.DELTA)
    read.take()
    former = gateway.session.id
    gateway.bus.sent.clear()
    gateway.bus.supervisor_pid = 0
    gateway.handlers.on_message(Rejoin(), b"")
    gateway.bus.iterate()
    assert gateway.session.admission.state is AdmissionState.RECOVERING
    late = gateway.start("r.late")
    assert not gateway.bus.sent
    gateway.bus.supervisor_pid = 1
    gateway.bus.iterate()
    gateway.welcome()
    assert gateway.session.id != former
    assert [(each.number, each.attempt, each.worker) for each in gateway.bus.snapshots[-1].requests] == [
        (waiting.number, 1, ""),
        (begun.number, 2, ""),
        (seen.number, 2, ""),
        (late.number, 1, ""),
    ]
    assert [number for number, _, _ in gateway.submitted()] == [each.number for each in (waiting, begun, seen, late)]
    assert read.failure is not None
    assert read.failure.code is Code.LOST
    waiting.abandon(Code.CANCELLED)
    assert gateway.bus.sent[-1] == Cancel(gateway.session.id, waiting.number, 1, Code.CANCELLED)
