"""Leases at a worker: a gateway's own requests are run, counted, reported, and refused when the lease has ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.failures import Code
from protocol.messages.events import EventKind
from protocol.messages.leases import LeasedAttempt, LeaseEnded, LeaseTerms, LeaseUsed, RevokeLease
from protocol.messages.peers import EngineDied, EngineReady, StartEngine
from protocol.messages.work import AttemptEnded
from protocol.wire import envelope
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.processes import kill
from tests.workers.direct_engine import spec_of
from tests.workers.lease_client import LeaseClient, issue_lease
from tests.workers.worker_process import CHAT, ENDLESS, running_worker
from workers.worker.leases import UNUSED_LEASE_S, WorkerLeases


def test_slots_are_counted() -> None:
    leases = WorkerLeases()
    assert not leases
    assert leases.issue(issue_lease(5, 2), 0.0)
    assert leases
    assert leases.use("g1", 5, 2, 1.0)
    assert not leases.use("g1", 5, 1, 1.0)
    leases.release("g1", 5, 1, 2.0)
    assert leases.use("g1", 5, 1, 3.0)
    assert not leases.use("g2", 5, 1, 3.0)
    assert not leases.use("g1", 4, 1, 3.0)


def test_slots_can_be_added() -> None:
    leases = WorkerLeases()
    leases.issue(issue_lease(5, 1), 0.0)
    assert leases.use("g1", 5, 1, 0.0)
    assert leases.issue(issue_lease(5, 2), 0.0)
    assert leases.use("g1", 5, 1, 0.0)


def test_an_ended_lease_is_not_issued_again() -> None:
    leases = WorkerLeases()
    leases.issue(issue_lease(5, 1), 0.0)
    assert not leases.end("g1", 4)
    assert leases.end("g1", 5)
    assert not leases.end("g1", 5)
    assert not leases.issue(issue_lease(5, 3), 0.0)
    assert leases.issue(issue_lease(6, 1), 0.0)
    assert [lease.number for lease in leases.clear()] == [6]
    assert not leases.issue(issue_lease(6, 1), 0.0)
    leases.release("g1", 6, 1, 0.0)


def test_a_lease_is_unused_when_nothing_ran_for_a_while() -> None:
    leases = WorkerLeases()
    leases.issue(issue_lease(5, 2), 0.0)
    assert not leases.unused(UNUSED_LEASE_S / 2)
    leases.use("g1", 5, 1, UNUSED_LEASE_S)
    assert not leases.unused(10.0)
    leases.release("g1", 5, 1, 10.0)
    assert not leases.unused(20.0, {"g1"})
    assert not leases.unused(20.0 + UNUSED_LEASE_S / 2)
    assert leases.unused(20.0 + UNUSED_LEASE_S)
    leases.use("g1", 5, 1, 10.0)
    leases.release("g1", 5, 1, 10.0)
    assert not leases.unused(10.0 + UNUSED_LEASE_S / 2)
    assert [lease.number for lease in leases.unused(10.0 + UNUSED_LEASE_S)] == [5]


@pytest.fixture
def lease_client(tmp_path: Path) -> Iterator[LeaseClient]:
    with running_worker(tmp_path) as one, LeaseClient(one) as lease_client:
        one.load(spec_of("tiny-loop", ctx_size=100_000))
        one.subscribe()
        # The worker has read the subscription once an ordinary request was answered.
        one.run(1, "chat/completions", {**CHAT, "max_tokens": 1})
        one.ended(1)
        one.expect(AttemptEnded)
        yield lease_client


def test_a_run_under_a_lease(lease_client: LeaseClient) -> None:
    terms = lease_client.issue(7, 2)
    assert terms == LeaseTerms(7, 2, "asked-for", "chat/completions", "m")
    lease_client.run(2, 7, {**CHAT, "max_tokens": 5})
    assert lease_client.worker.ended(2).done.output_tokens == 5
    idle = lease_client.worker.expect(AttemptEnded)
    assert (idle.number, idle.lease, idle.code) == (2, 7, "")
    assert idle.outcome is not None
    assert lease_client.worker.expect(LeaseEnded) == LeaseEnded(lease_client.worker.gateway, 7, [])
    lease_client.until(EventKind.LEASE_ENDED, 7)


def test_a_request_that_was_granted_before_uses_slots_of_the_lease(lease_client: LeaseClient) -> None:
    lease_client.worker.run(2, "chat/completions", ENDLESS, stream=True)
    lease_client.worker.begun(2)
    lease_client.issue(7, 1, first=2)
    lease_client.run(3, 7, CHAT)
    assert lease_client.worker.ended(3).failure.code == Code.RETURNED
    lease_client.cancel(2)
    idle = lease_client.worker.expect(AttemptEnded)
    assert (idle.number, idle.code, idle.lease) == (2, Code.CANCELLED, 7)
    assert lease_client.worker.expect(LeaseEnded).runs == []
    lease_client.issue(8, 1)
    lease_client.run(4, 8, {**CHAT, "max_tokens": 2})
    assert lease_client.worker.ended(4).done.output_tokens == 2


def test_a_request_for_several_slots_uses_several(lease_client: LeaseClient) -> None:
    lease_client.worker.run(2, "chat/completions", ENDLESS, stream=True)
    lease_client.worker.begun(2)
    lease_client.issue(7, 3, first=2, weight=2)
    lease_client.run(3, 7, ENDLESS, stream=True)
    lease_client.worker.begun(3)
    lease_client.run(4, 7, CHAT)
    assert lease_client.worker.ended(4).failure.code == Code.RETURNED
    lease_client.cancel(2)
    lease_client.worker.expect(AttemptEnded)
    for number in (5, 6):
        lease_client.run(number, 7, ENDLESS, stream=True)
        lease_client.worker.begun(number)
    lease_client.worker.send(RevokeLease(lease_client.worker.gateway, 7))
    ended = lease_client.worker.expect(LeaseEnded)
    assert sorted(run.number for run in ended.runs) == [3, 5, 6]


def test_a_granted_request_is_named_when_its_lease_ends(lease_client: LeaseClient) -> None:
    lease_client.worker.run(2, "chat/completions", ENDLESS, stream=True)
    lease_client.worker.begun(2)
    lease_client.issue(7, 1, first=2)
    lease_client.worker.send(RevokeLease(lease_client.worker.gateway, 7))
    assert lease_client.worker.expect(LeaseEnded).runs == [LeasedAttempt(2, 1, 1)]
    lease_client.worker.send(issue_lease(7, 2, lease_client.worker.gateway, 2))
    lease_client.worker.cancel(2)
    assert lease_client.worker.expect(AttemptEnded).number == 2


def test_a_lease_that_its_gateway_cannot_learn_of_does_not_delay_the_request(tmp_path: Path) -> None:
    with running_worker(tmp_path) as one, LeaseClient(one) as lease_client:
        one.load(spec_of("tiny-loop"))
        one.run(2, "chat/completions", {**CHAT, "max_tokens": 2})
        assert lease_client.issue_refused(7, first=2).runs == [LeasedAttempt(2, 1, 1)]
        one.subscribe()
        assert one.ended(2).done.output_tokens == 2
        assert one.expect(AttemptEnded).number == 2


def test_a_request_beyond_the_slots_of_a_lease_is_returned(lease_client: LeaseClient) -> None:
    lease_client.issue(7, 1)
    lease_client.run(2, 7, ENDLESS, stream=True)
    lease_client.worker.begun(2)
    lease_client.run(3, 7, ENDLESS, stream=True)
    assert lease_client.worker.ended(3).failure.code == Code.RETURNED
    lease_client.cancel(2)
    idle = lease_client.worker.expect(AttemptEnded)
    assert (idle.number, idle.code, idle.lease) == (2, Code.CANCELLED, 7)


def test_long_running_requests_are_reported(lease_client: LeaseClient) -> None:
    lease_client.issue(7, 2)
    lease_client.run(2, 7, ENDLESS, stream=True)
    lease_client.run(3, 7, ENDLESS, stream=True)
    reported: list[LeasedAttempt] = []
    while len(reported) < 2:
        reported += lease_client.worker.expect(LeaseUsed).runs
    assert sorted(reported, key=lambda run: run.number) == [LeasedAttempt(2, 1, 1), LeasedAttempt(3, 1, 1)]


def test_the_end_of_a_revoked_lease_names_running_requests(lease_client: LeaseClient) -> None:
    lease_client.issue(7, 2)
    lease_client.run(2, 7, ENDLESS, stream=True)
    lease_client.worker.begun(2)
    lease_client.worker.send(RevokeLease(lease_client.worker.gateway, 7))
    assert lease_client.worker.expect(LeaseEnded).runs == [LeasedAttempt(2, 1, 1)]
    lease_client.until(EventKind.LEASE_ENDED, 7)
    lease_client.run(3, 7, CHAT)
    assert lease_client.worker.ended(3).failure.code == Code.RETURNED
    lease_client.worker.cancel(2)
    assert lease_client.worker.expect(AttemptEnded).number == 2


def test_a_lease_without_a_subscriber_ends_at_once(lease_client: LeaseClient) -> None:
    lease_client.worker.send(issue_lease(8, 2, "g00000000"))
    assert lease_client.worker.expect(LeaseEnded) == LeaseEnded("g00000000", 8, [])


def test_the_lease_of_a_gateway_that_left_ends(lease_client: LeaseClient) -> None:
    lease_client.issue(7, 2)
    lease_client.run(2, 7, ENDLESS, stream=True)
    lease_client.worker.begun(2)
    assert lease_client.worker.sub is not None
    lease_client.worker.sub.close(0)
    lease_client.worker.sub = None
    assert lease_client.worker.expect(LeaseEnded).runs == [LeasedAttempt(2, 1, 1)]
    assert lease_client.worker.expect(AttemptEnded).code == Code.GATEWAY_GONE


def test_leases_end_with_the_engine(lease_client: LeaseClient) -> None:
    lease_client.issue(7, 2)
    lease_client.run(2, 7, ENDLESS, stream=True)
    lease_client.worker.begun(2)
    kill(lease_client.worker.ready.engine_pid)
    assert lease_client.worker.ended(2).failure.code == Code.BACKEND_DIED
    lease_client.worker.expect(EngineDied)
    lease_client.until(EventKind.LEASE_ENDED, 7)
    lease_client.issue_refused(8)
    lease_client.worker.send(StartEngine(spec_of("tiny-chat")))
    lease_client.worker.expect(EngineReady, 20)
    lease_client.run(3, 7, CHAT)
    assert lease_client.worker.ended(3).failure.code == Code.RETURNED
    lease_client.issue(9, 1)
    lease_client.run(4, 9, {**CHAT, "max_tokens": 100}, stream=True)
    assert lease_client.worker.ended(4).text == CHAT_TEXT


def test_what_is_no_request_is_not_read_there(lease_client: LeaseClient) -> None:
    lease_client.issue(7, 2)
    lease_client.socket.send(envelope.encode(RevokeLease(lease_client.worker.gateway, 7)))
    lease_client.socket.send(b"LB0 Run\nxx")
    lease_client.socket.send_multipart([b"", b"", b""])
    lease_client.run(2, 7, {**CHAT, "max_tokens": 3})
    assert lease_client.worker.ended(2).done.output_tokens == 3
