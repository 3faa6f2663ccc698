"""The scheduler's queue: which requests run, and which wait."""

from __future__ import annotations

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.work import SubmitRequest
from protocol.worker_states import WorkerState
from tests.supervisor.scheduler.simulation import Simulation, loaded


def test_a_request_for_an_unloaded_model_loads_it_and_runs() -> None:
    sim = Simulation()
    key = sim.submit("a")
    sim.run_until_idle()
    assert sim.order == [key]
    sim.finish(key)
    assert sim.scheduler.view.busy == 0


def test_requests_beyond_the_slots_wait_in_order() -> None:
    sim = loaded("a")
    keys = [sim.submit("a") for _ in range(5)]
    assert sim.order == keys[:2]
    sim.finish(keys[1])
    assert sim.order == keys[:3]


def test_a_heavy_request_is_not_overtaken() -> None:
    sim = loaded("a")
    light = sim.submit("a")
    heavy = sim.submit("a", weight=2)
    behind = sim.submit("a")
    assert sim.order == [light]
    sim.finish(light)
    assert sim.order == [light, heavy]
    sim.finish(heavy)
    assert sim.order == [light, heavy, behind]


def test_a_returned_read_is_refused() -> None:
    sim = loaded("a")
    key = RequestKey("g1", 700, 1)
    sim.scheduler.state_read(key, SubmitRequest(700, 1, "a", "slots", "label", 0), b"", "a")
    sim.scheduler.effects()
    sim.scheduler.attempt_ended(key, "returned", sim.now)
    sim.settle()
    assert sim.refusals[key].code is Code.RETURNED


def test_a_cancelled_grant_ends_with_idle_not_with_the_cancel() -> None:
    sim = loaded("a")
    key = sim.submit("a")
    sim.cancel(key)
    assert sim.scheduler.view.busy == 1
    sim.finish(key, Code.CANCELLED)
    assert sim.scheduler.view.busy == 0


def test_a_hang_up_removes_a_request_from_the_queue() -> None:
    sim = loaded("a")
    keys = [sim.submit("a") for _ in range(3)]
    sim.cancel(keys[2])
    assert sim.scheduler.view.queued == 0


def test_shutdown_refuses_queued_and_finishes_running_requests() -> None:
    sim = loaded("a")
    running = [sim.submit("a"), sim.submit("a")]
    waiting = sim.submit("a")
    sim.scheduler.close()
    sim.settle()
    assert sim.refusals[waiting].code is Code.DRAINING
    assert sim.refusals[sim.submit("a")].code is Code.DRAINING
    for key in running:
        sim.finish(key)
    sim.run_until_idle()
    assert not sim.of_state(WorkerState.READY, WorkerState.DRAINING)
