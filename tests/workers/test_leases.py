"""Leases at a worker: what a gateway sends itself is run, counted, told, and refused when the lease is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol import wire
from protocol.events import Kind
from protocol.failures import Code
from protocol.leases import LeaseEnded, LeaseUsed, Offer, Recall, Used
from protocol.staff import EngineDied, Load, Ready
from protocol.work import Idle
from tests.house.models import STORY
from tests.house.processes import kill
from tests.workers.engines import spec_of
from tests.workers.leasing import Straight, lending
from tests.workers.stand import CHAT, ENDLESS, stand
from workers.leases import UNUSED_S, Leases


def test_slots_are_counted() -> None:
    leases = Leases()
    assert not leases
    assert leases.lend(lending(5, 2), 0.0)
    assert leases
    assert leases.take("g1", 5, 2, 1.0)
    assert not leases.take("g1", 5, 1, 1.0)
    leases.give("g1", 5, 1, 2.0)
    assert leases.take("g1", 5, 1, 3.0)
    assert not leases.take("g2", 5, 1, 3.0)
    assert not leases.take("g1", 4, 1, 3.0)


def test_more_may_be_lent() -> None:
    leases = Leases()
    leases.lend(lending(5, 1), 0.0)
    assert leases.take("g1", 5, 1, 0.0)
    assert leases.lend(lending(5, 2), 0.0)
    assert leases.take("g1", 5, 1, 0.0)


def test_what_is_over_does_not_come_back() -> None:
    leases = Leases()
    leases.lend(lending(5, 1), 0.0)
    assert not leases.end("g1", 4)
    assert leases.end("g1", 5)
    assert not leases.end("g1", 5)
    assert not leases.lend(lending(5, 3), 0.0)
    assert leases.lend(lending(6, 1), 0.0)
    assert [lease.number for lease in leases.clear()] == [6]
    assert not leases.lend(lending(6, 1), 0.0)
    leases.give("g1", 6, 1, 0.0)


def test_a_lease_is_unused_when_nothing_ran_for_a_while() -> None:
    leases = Leases()
    leases.lend(lending(5, 2), 0.0)
    assert not leases.unused(UNUSED_S / 2)
    leases.take("g1", 5, 1, UNUSED_S)
    assert not leases.unused(10.0)
    leases.give("g1", 5, 1, 10.0)
    assert not leases.unused(20.0, {"g1"})
    assert not leases.unused(20.0 + UNUSED_S / 2)
    assert leases.unused(20.0 + UNUSED_S)
    leases.take("g1", 5, 1, 10.0)
    leases.give("g1", 5, 1, 10.0)
    assert not leases.unused(10.0 + UNUSED_S / 2)
    assert [lease.number for lease in leases.unused(10.0 + UNUSED_S)] == [5]


@pytest.fixture
def straight(tmp_path: Path) -> Iterator[Straight]:
    with stand(tmp_path) as one, Straight(one) as ways:
        one.load(spec_of("tiny-loop", ctx_size=100_000))
        one.subscribe()
        # It is heard once a request of the usual way was.
        one.run(1, "chat/completions", {**CHAT, "max_tokens": 1})
        one.ended(1)
        one.expect(Idle)
        yield ways


def test_a_run_under_a_lease(straight: Straight) -> None:
    offer = straight.lend(7, 2)
    assert offer == Offer(7, 2, "asked-for", "chat/completions", "m")
    straight.run(2, 7, {**CHAT, "max_tokens": 5})
    assert straight.stand.ended(2).done.output_tokens == 5
    idle = straight.stand.expect(Idle)
    assert (idle.number, idle.lease, idle.code) == (2, 7, "")
    assert idle.outcome is not None
    assert straight.stand.expect(LeaseEnded) == LeaseEnded(straight.stand.gateway, 7, [])
    straight.until(Kind.LEASE_OVER, 7)


def test_a_request_that_was_granted_uses_what_is_lent(straight: Straight) -> None:
    straight.stand.run(2, "chat/completions", ENDLESS, stream=True)
    straight.stand.begun(2)
    straight.lend(7, 1, first=2)
    straight.run(3, 7, CHAT)
    assert straight.stand.ended(3).failure.code == Code.RETURNED
    straight.cancel(2)
    idle = straight.stand.expect(Idle)
    assert (idle.number, idle.code, idle.lease) == (2, Code.CANCELLED, 7)
    assert straight.stand.expect(LeaseEnded).runs == []
    straight.lend(8, 1)
    straight.run(4, 8, {**CHAT, "max_tokens": 2})
    assert straight.stand.ended(4).done.output_tokens == 2


def test_a_heavy_request_uses_as_much_as_it_holds(straight: Straight) -> None:
    straight.stand.run(2, "chat/completions", ENDLESS, stream=True)
    straight.stand.begun(2)
    straight.lend(7, 3, first=2, weight=2)
    straight.run(3, 7, ENDLESS, stream=True)
    straight.stand.begun(3)
    straight.run(4, 7, CHAT)
    assert straight.stand.ended(4).failure.code == Code.RETURNED
    straight.cancel(2)
    straight.stand.expect(Idle)
    for number in (5, 6):
        straight.run(number, 7, ENDLESS, stream=True)
        straight.stand.begun(number)
    straight.stand.send(Recall(straight.stand.gateway, 7))
    ended = straight.stand.expect(LeaseEnded)
    assert sorted(run.number for run in ended.runs) == [3, 5, 6]


def test_a_granted_request_is_named_when_its_lease_ends(straight: Straight) -> None:
    straight.stand.run(2, "chat/completions", ENDLESS, stream=True)
    straight.stand.begun(2)
    straight.lend(7, 1, first=2)
    straight.stand.send(Recall(straight.stand.gateway, 7))
    assert straight.stand.expect(LeaseEnded).runs == [Used(2, 1, 1)]
    straight.stand.send(lending(7, 2, straight.stand.gateway, 2))
    straight.stand.cancel(2)
    assert straight.stand.expect(Idle).number == 2


def test_a_lease_that_cannot_be_told_keeps_nothing_from_its_request(tmp_path: Path) -> None:
    with stand(tmp_path) as one, Straight(one) as ways:
        one.load(spec_of("tiny-loop"))
        one.run(2, "chat/completions", {**CHAT, "max_tokens": 2})
        assert ways.lend_in_vain(7, first=2).runs == [Used(2, 1, 1)]
        one.subscribe()
        assert one.ended(2).done.output_tokens == 2
        assert one.expect(Idle).number == 2


def test_the_worker_counts(straight: Straight) -> None:
    straight.lend(7, 1)
    straight.run(2, 7, ENDLESS, stream=True)
    straight.stand.begun(2)
    straight.run(3, 7, ENDLESS, stream=True)
    assert straight.stand.ended(3).failure.code == Code.RETURNED
    straight.cancel(2)
    idle = straight.stand.expect(Idle)
    assert (idle.number, idle.code, idle.lease) == (2, Code.CANCELLED, 7)


def test_what_runs_for_long_is_told(straight: Straight) -> None:
    straight.lend(7, 2)
    straight.run(2, 7, ENDLESS, stream=True)
    straight.run(3, 7, ENDLESS, stream=True)
    told: list[Used] = []
    while len(told) < 2:
        told += straight.stand.expect(LeaseUsed).runs
    assert sorted(told, key=lambda run: run.number) == [Used(2, 1, 1), Used(3, 1, 1)]


def test_a_recall_names_what_still_runs(straight: Straight) -> None:
    straight.lend(7, 2)
    straight.run(2, 7, ENDLESS, stream=True)
    straight.stand.begun(2)
    straight.stand.send(Recall(straight.stand.gateway, 7))
    assert straight.stand.expect(LeaseEnded).runs == [Used(2, 1, 1)]
    straight.until(Kind.LEASE_OVER, 7)
    straight.run(3, 7, CHAT)
    assert straight.stand.ended(3).failure.code == Code.RETURNED
    straight.stand.cancel(2)
    assert straight.stand.expect(Idle).number == 2


def test_a_lease_nobody_can_hear_of_is_over_at_once(straight: Straight) -> None:
    straight.stand.send(lending(8, 2, "g00000000"))
    assert straight.stand.expect(LeaseEnded) == LeaseEnded("g00000000", 8, [])


def test_a_gateway_that_leaves_leaves_its_lease(straight: Straight) -> None:
    straight.lend(7, 2)
    straight.run(2, 7, ENDLESS, stream=True)
    straight.stand.begun(2)
    assert straight.stand.sub is not None
    straight.stand.sub.close(0)
    straight.stand.sub = None
    assert straight.stand.expect(LeaseEnded).runs == [Used(2, 1, 1)]
    assert straight.stand.expect(Idle).code == Code.GATEWAY_GONE


def test_an_engine_takes_its_leases_with_it(straight: Straight) -> None:
    straight.lend(7, 2)
    straight.run(2, 7, ENDLESS, stream=True)
    straight.stand.begun(2)
    kill(straight.stand.ready.engine_pid)
    assert straight.stand.ended(2).failure.code == Code.BACKEND_DIED
    straight.stand.expect(EngineDied)
    straight.until(Kind.LEASE_OVER, 7)
    straight.lend_in_vain(8)
    straight.stand.send(Load(spec_of("tiny-chat")))
    straight.stand.expect(Ready, 20)
    straight.run(3, 7, CHAT)
    assert straight.stand.ended(3).failure.code == Code.RETURNED
    straight.lend(9, 1)
    straight.run(4, 9, {**CHAT, "max_tokens": 100}, stream=True)
    assert straight.stand.ended(4).text == STORY


def test_what_is_no_request_is_not_read_there(straight: Straight) -> None:
    straight.lend(7, 2)
    straight.socket.send(wire.encode(Recall(straight.stand.gateway, 7)))
    straight.socket.send(b"LB0 Run\nxx")
    straight.socket.send_multipart([b"", b"", b""])
    straight.run(2, 7, {**CHAT, "max_tokens": 3})
    assert straight.stand.ended(2).done.output_tokens == 3
