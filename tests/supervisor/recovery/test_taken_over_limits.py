"""The limits of API keys while a supervisor takes over: each request is counted once."""

from __future__ import annotations

from msgspec import structs

from protocol.messages.caller import Caller, KeyUsage
from protocol.messages.calls import AbandonCall
from protocol.messages.peers import Welcome
from protocol.messages.recovery import (
    AttemptSnapshot,
    GatewaySnapshot,
    RequestSnapshot,
)
from protocol.messages.work import Granted, Refused, ReserveRequest, Run
from tests.supervisor.recovery.recovery_harness import MODEL, TakingOver, ready, submit


def test_a_request_that_was_reserved_meanwhile_is_counted_once(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    caller = Caller("ci", requests_per_minute=9)
    taking_over.begin()
    gateway.hello(GatewaySnapshot())
    gateway.send(ReserveRequest(4, MODEL, "chat/completions", caller))
    gateway.send(submit(5, 6.0, caller=caller, reservation=4))
    gateway.send(AbandonCall(4))
    taking_over.run_until(lambda: gateway.got(Welcome))
    worker.hello(ready())
    taking_over.run_until(lambda: worker.got(Run))
    usage = [each.limits.requests for each in gateway.got(KeyUsage)]
    assert [each.remaining for each in usage if each is not None] == [8, 8]


def test_requests_that_were_admitted_are_not_refused_for_their_keys_limits(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    caller = Caller("ci", requests_per_minute=1)
    taking_over.begin()
    worker.hello(ready())
    gateway.hello(GatewaySnapshot([RequestSnapshot(number, 1, 9.0 - number, caller=caller) for number in (1, 2, 3)]))
    for number in (1, 2, 3):
        gateway.send(structs.replace(submit(number, 9.0 - number, caller=caller), admitted=True))
    taking_over.run_until(lambda: worker.got(Run) and len(gateway.got(KeyUsage)) == 3)
    assert gateway.got(Refused) == []
    assert [waiting.key.number for waiting in taking_over.components.scheduler._state.models[MODEL].queue] == [2, 3]


def test_a_request_that_runs_and_is_submitted_again_is_not_measured_by_its_keys_limits(
    taking_over: TakingOver,
) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    caller = Caller("ci", concurrent=1)
    taking_over.begin()
    worker.hello(ready(AttemptSnapshot("g1", 1, 1, 1, 5.0)))
    gateway.hello(GatewaySnapshot([RequestSnapshot(1, 1, 4.0, caller=caller)]))
    gateway.send(submit(1, 4.0, caller=caller))
    taking_over.run_until(lambda: gateway.got(Granted) or gateway.got(Refused))
    assert gateway.got(Refused) == []
    assert len(gateway.got(KeyUsage)) == 1
