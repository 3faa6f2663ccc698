"""The scheduler's queue: which requests run, and which wait."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.events import Outcome
from protocol.messages.work import SubmitRequest
from protocol.worker_states import WorkerState
from supervisor.scheduler.queue.grants import ALONE_S
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


def serving(sim: Simulation) -> bool:
    return bool(sim.of_state(WorkerState.READY, WorkerState.DRAINING))


@pytest.mark.parametrize("next_came_first", [False, True])
def test_shutdown_lets_all_pieces_of_a_list_end(next_came_first: bool) -> None:
    sim = loaded("a")
    first = sim.submit("a", more=True)
    running = [first, sim.submit("a")]
    sim.scheduler.close()
    sim.settle()
    if not next_came_first:
        for key in running:
            sim.finish(key)
        sim.run_until_idle()
        assert serving(sim), "the next piece is to come"
        assert sim.scheduler.view.running == 1
    later = sim.submit("a", earlier=Outcome(), after=first)
    assert later not in sim.refusals
    if next_came_first:
        assert sim.scheduler.view.queued == 1, "it waits its turn"
        for key in running:
            sim.finish(key)
    assert sim.scheduler.view.running == 1
    sim.finish(later)
    sim.run_until_idle()
    assert not serving(sim)
    assert sim.scheduler.view.running == 0


def test_a_list_counts_against_its_key_between_two_pieces() -> None:
    sim = loaded("a")
    first = sim.submit("a", caller="k", size=7, more=True)
    sim.finish(first)
    assert (sim.scheduler.view.requests_of_key("k"), sim.scheduler.view.reserved_tokens("k")) == (1, 7)
    later = sim.submit("a", caller="k", size=7, earlier=Outcome(), after=first)
    assert (sim.scheduler.view.requests_of_key("k"), sim.scheduler.view.reserved_tokens("k")) == (1, 7)
    sim.finish(later)
    assert (sim.scheduler.view.requests_of_key("k"), sim.scheduler.view.reserved_tokens("k")) == (0, 0)


@pytest.mark.parametrize("gone", ["its client", "its gateway", "its gateway, before the end"])
def test_shutdown_does_not_wait_for_a_piece_that_will_not_come(gone: str) -> None:
    sim = loaded("a")
    first = sim.submit("a", more=True)
    sim.scheduler.close()
    sim.settle()
    if gone == "its gateway, before the end":
        sim.gateway_dies("g1")
    sim.finish(first)
    assert serving(sim) or gone == "its gateway, before the end"
    if gone == "its client":
        sim.scheduler.request_cancelled(first, "client gone")
        sim.settle()
    elif gone == "its gateway":
        sim.gateway_dies("g1")
    sim.run_until_idle()
    assert not serving(sim)
    assert sim.scheduler.view.running == 0


def test_shutdown_refuses_a_later_piece_whose_engine_is_gone() -> None:
    sim = loaded("a")
    first, _running = sim.submit("a", more=True), sim.submit("a")
    sim.scheduler.close()
    sim.settle()
    sim.finish(first)
    later = sim.submit("a", weight=2, earlier=Outcome(), more=True, after=first)
    assert sim.scheduler.view.queued == 1
    (worker,) = sim.of_state(WorkerState.DRAINING)
    sim.engine_dies(worker)
    assert sim.refusals[later].code is Code.DRAINING
    assert (sim.scheduler.view.running, sim.scheduler.view.queued) == (0, 0)


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


def test_a_suspect_runs_alone_for_a_while() -> None:
    sim = loaded("a", slots=2)
    suspect, others = sim.submit("a", suspect=True), [sim.submit("a") for _ in range(2)]
    sim.pass_time(ALONE_S - 1)
    sim.run_until_idle()
    assert sim.order == [suspect]
    sim.pass_time(1.0)
    sim.run_until_idle()
    assert sim.order == [suspect, others[0]]
    sim.finish(suspect)
    assert sim.order == [suspect, *others]


def test_a_suspect_on_another_server_does_not_wait_for_others() -> None:
    sim = Simulation(slots=2)
    sim.load("a", elsewhere=True)
    sim.run_until_idle()
    keys = [sim.submit("a"), sim.submit("a", suspect=True)]
    sim.run_until_idle()
    assert sim.order == keys
