"""Peers that connect again to a supervisor that serves: what was lost with the connection is made good."""

from __future__ import annotations

from protocol.failures import Code
from protocol.messages.engines import EngineReady
from protocol.messages.recovery import (
    AttemptSnapshot,
    GatewaySnapshot,
    RequestSnapshot,
    WorkerSnapshot,
)
from protocol.messages.work import Cancel, Refused
from protocol.worker_states import WorkerState
from supervisor.scheduler.model_states import ModelState
from tests.supervisor.recovery.recovery_harness import MODEL, SPEC, TakingOver, ready, submit


def test_a_worker_that_connects_again_later_is_taken_up(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    taking_over.begin()
    worker.hello(ready(AttemptSnapshot("g1", 1, 1, 1, 5.0), AttemptSnapshot("g1", 2, 1, 1, 5.0), slots=2))
    gateway.hello(GatewaySnapshot([RequestSnapshot(1, 1, 4.0, "w1"), RequestSnapshot(2, 1, 4.0, "w1")]))
    taking_over.run_until(lambda: taking_over.over)
    worker.reconnect()
    worker.hello(ready(AttemptSnapshot("g1", 1, 1, 1, 5.0), AttemptSnapshot("g1", 9, 1, 1, 5.0), slots=2))
    taking_over.run_until(lambda: gateway.got(Refused) and worker.got(Cancel))
    assert [(refused.number, refused.failure.code) for refused in gateway.got(Refused)] == [(2, Code.RETURNED)]
    assert [cancel.number for cancel in worker.got(Cancel)] == [9]
    assert list(taking_over.components.scheduler._state.models[MODEL].grants) == [("g1", 1, 1)]
    worker.reconnect()
    worker.hello(WorkerSnapshot(WorkerState.LOADING, SPEC))
    taking_over.run_until(lambda: not taking_over.is_alive(0))


def test_a_gateway_that_connects_again_later_has_its_lost_cancels_done(taking_over: TakingOver) -> None:
    worker, gateway = taking_over.survivor("worker", "w1"), taking_over.gateway("g1")
    taking_over.begin()
    worker.hello(ready(AttemptSnapshot("g1", 1, 1, 1, 5.0)))
    gateway.hello(
        GatewaySnapshot([RequestSnapshot(1, 1, 4.0, "w1"), RequestSnapshot(2, 1, 4.0), RequestSnapshot(3, 1, 4.0)])
    )
    gateway.send(submit(2, 4.0))
    gateway.send(submit(3, 4.0))
    taking_over.run_until(lambda: taking_over.over)
    gateway.reconnect()
    gateway.hello(GatewaySnapshot([RequestSnapshot(3, 1, 4.0)]))
    gateway.send(submit(3, 4.0))
    taking_over.run_until(lambda: worker.got(Cancel))
    assert [waiting.key.number for waiting in taking_over.components.scheduler._state.models[MODEL].queue] == [3]


def test_a_load_that_became_ready_on_a_lost_connection_is_ready(taking_over: TakingOver) -> None:
    worker = taking_over.survivor("worker", "w1")
    taking_over.begin()
    worker.hello(WorkerSnapshot(WorkerState.LOADING, SPEC))
    taking_over.run_until(lambda: taking_over.over)
    model = taking_over.components.scheduler._state.models[MODEL]
    assert model.state is ModelState.LOADING
    worker.reconnect()
    worker.hello(ready())
    taking_over.run_until(lambda: model.state is ModelState.READY)
    worker.send(EngineReady(1, 4096, 1, "", 0.1))  # again: it does no harm
    taking_over.loop.run_once(0.02)
    assert model.state is ModelState.READY
