"""Which requests a gateway admits while it has no supervisor, while it drains, and when another version takes over."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from gevent.event import Event

from gateway.http.body_memory import BodyMemory, HeldBody
from gateway.requests.admission_states import ADMISSION_FAILURES, MAX_WAIT_FOR_SUPERVISOR_S, AdmissionState
from gateway.server.gunicorn_worker import GunicornWorker
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.events import EventKind, Outcome
from protocol.messages.health import GetHealth
from protocol.messages.peers import PauseAccepting, Shutdown
from tests.gateway.bus.session_harness import SessionHarness


def test_requests_are_refused_when_no_supervisor_has_come_for_long(
    gateway: SessionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, waiting = gateway.start(), gateway.start()
    gateway.grant(running)
    began = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: began)
    gateway.end_supervisor()
    call = gateway.session.start_call({}, GetHealth)
    gateway.session.check_connection(began + MAX_WAIT_FOR_SUPERVISOR_S - 1)
    assert waiting.failure is None
    monkeypatch.setattr(time, "monotonic", lambda: began + MAX_WAIT_FOR_SUPERVISOR_S + 1)
    gateway.session.check_connection(time.monotonic())
    assert waiting.failure is not None
    with pytest.raises(LemonbusError) as late:
        call.next(0)
    with pytest.raises(LemonbusError) as refused:
        gateway.start()
    for failure in (waiting.failure, late.value.failure, refused.value.failure):
        assert (failure.code, failure.http_status, bool(failure.retry_after)) == (Code.SUPERVISOR_LOST, 503, True)
    assert running.failure is None
    gateway.welcome()
    assert gateway.start().failure is None


def test_the_end_of_the_keeper_meanwhile_is_the_end_of_the_server(gateway: SessionHarness) -> None:
    running, waiting = gateway.start(), gateway.start()
    gateway.deliver(running, EventKind.DELTA)
    gateway.end_supervisor()
    gateway.session.keeper_ended()
    assert (running.failure, waiting.failure and waiting.failure.code) == (None, Code.SUPERVISOR_LOST)
    hellos = len(gateway.bus.snapshots)
    gateway.session.supervisor_ended()
    gateway.session.check_connection(time.monotonic() + 100)
    gateway.welcome()
    assert (len(gateway.bus.snapshots), gateway.session.admission.state) == (hellos, AdmissionState.LOST)


def test_requests_wait_for_the_first_supervisor_too(tmp_path: Path) -> None:
    gateway = SessionHarness(tmp_path)
    exchange = gateway.start()
    assert gateway.submitted() == [(exchange.number, 1, True)]
    gateway.welcome()
    assert gateway.session.admission.state is AdmissionState.OPEN


def test_a_gateway_that_drains_admits_nothing_after_a_new_supervisors_welcome(gateway: SessionHarness) -> None:
    gateway.session.drain(10.0)
    assert gateway.session.admission.server_ends
    gateway.end_supervisor()
    gateway.welcome()
    with pytest.raises(LemonbusError, match="stopping"):
        gateway.start()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_later_piece_needs_only_a_supervisor(gateway: SessionHarness, replaced: bool) -> None:
    gateway.session.drain(10.0, replaced=replaced)
    assert gateway.start(earlier=Outcome()).failure is None
    gateway.end_supervisor()
    with pytest.raises(LemonbusError) as refused:
        gateway.start(earlier=Outcome())
    assert refused.value.failure.code is Code.DRAINING
    gateway.welcome()
    assert gateway.start(earlier=Outcome()).failure is None
    gateway.session.keeper_ended()
    with pytest.raises(LemonbusError) as lost:
        gateway.start(earlier=Outcome())
    assert lost.value.failure.code is Code.SUPERVISOR_LOST


def test_what_waits_for_a_supervisor_of_another_version_is_to_be_repeated(gateway: SessionHarness) -> None:
    running, waiting = gateway.start(), gateway.start()
    gateway.grant(running)
    gateway.end_supervisor()
    gateway.handlers.on_message(Shutdown(60.0, "another version takes over"), b"")
    assert running.failure is None
    assert waiting.failure is not None
    assert (waiting.failure.code, waiting.failure.retry_after) == (Code.DRAINING, 1)
    assert "repeat the request" in waiting.failure.message
    with pytest.raises(LemonbusError, match="repeat the request"):
        gateway.start()
    assert not gateway.session.admission.server_ends, "other processes need the listener"


def test_a_body_that_arrives_while_another_version_takes_over_is_to_be_sent_again(
    gateway: SessionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Failure] = []
    worker = GunicornWorker.__new__(GunicornWorker)
    worker.session, worker.body_memory = gateway.session, BodyMemory(100)
    worker.body_memory.begin(HeldBody("client"), failures.append)
    monkeypatch.setattr(worker, "_stop_event", Event(), raising=False)
    gateway.session.on_shutdown = worker.begin_shutdown
    gateway.handlers.on_message(Shutdown(60.0, "another version takes over"), b"")
    assert failures == [ADMISSION_FAILURES[AdmissionState.REPLACED]]


def test_new_connections_are_left_to_others_until_a_supervisor_takes_this_process_over(
    gateway: SessionHarness,
) -> None:
    noted: list[str] = []
    gateway.session.on_pause, gateway.session.on_resume = (
        partial(noted.append, "pause"),
        partial(noted.append, "resume"),
    )
    gateway.handlers.on_message(PauseAccepting(), b"")
    assert noted == [], "its supervisor lives: the message is of none that takes over"
    gateway.end_supervisor()
    waiting = gateway.start()
    for _ in range(2):
        gateway.handlers.on_message(PauseAccepting(), b"")
    assert (noted, waiting.failure) == (["pause"], None)
    for _ in range(2):
        gateway.welcome()
    assert noted == ["pause", "resume"]
