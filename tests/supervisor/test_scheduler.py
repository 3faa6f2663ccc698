"""Histories of requests, loads and unloads for the scheduler: what runs, what waits, what is evicted."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.peers import StartEngine
from protocol.messages.work import SubmitRequest
from supervisor.scheduler.scheduled_model import needs_new_engine
from supervisor.scheduler.worker_states import WorkerState
from tests.supervisor.effect_player import spec
from tests.supervisor.simulation import Simulation, loaded


def test_a_request_for_an_unloaded_model_loads_it_and_runs() -> None:
    sim = Simulation()
    key = sim.submit("a")
    sim.run_until_idle()
    assert sim.order == [key]
    sim.finish(key)
    assert sim.scheduler.granted == 0


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


def test_an_idle_model_is_evicted_for_another() -> None:
    sim = loaded("a")
    key = sim.submit("b")
    sim.run_until_idle()
    assert sim.order == [key]
    assert sim.scheduler.models.get("a") is None


def test_a_busy_model_ends_its_stream_first_and_later_ones_wait_behind() -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    for_b = sim.submit("b")
    second = sim.submit("a")
    sim.run_until_idle()
    assert sim.order == [stream]
    assert sim.of_state(WorkerState.DRAINING) == [sim.serving("a")]
    sim.finish(stream)
    sim.run_until_idle()
    assert sim.order == [stream, for_b]
    sim.finish(for_b)
    sim.run_until_idle()
    assert sim.order == [stream, for_b, second]


def test_the_second_waits_even_while_the_other_is_only_being_checked() -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    sim.submit("b")
    sim.submit("a")
    assert sim.order == [stream]


def test_requests_queued_before_the_other_model_are_served_first() -> None:
    sim = loaded("a")
    first = [sim.submit("a") for _ in range(4)]
    other = sim.submit("b")
    sim.run_until_idle()
    for key in first:
        sim.finish(key)
    sim.run_until_idle()
    assert sim.order == [*first, other]


def test_a_load_serves_all_waiting_requests() -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    for_b = [sim.submit("b") for _ in range(2)]
    again = sim.submit("a")
    late = [sim.submit("b") for _ in range(2)]
    sim.finish(stream)
    sim.run_until_idle()
    for key in [*for_b, *late]:
        assert key in sim.order
        sim.finish(key)
    sim.run_until_idle()
    assert sim.order == [stream, *for_b, *late, again]


def test_a_returned_read_is_refused() -> None:
    sim = loaded("a")
    key = RequestKey("g1", 700, 1)
    sim.scheduler.state_read(key, SubmitRequest(700, 1, "a", "slots", "label", 0), b"", sim.scheduler.models["a"])
    sim.scheduler.effects()
    sim.scheduler.attempt_ended(key, "returned", sim.now)
    sim.settle()
    assert sim.refusals[key].code is Code.RETURNED


def test_pinned_models_stay_and_are_named() -> None:
    sim = Simulation()
    sim.load("a", 500, pinned=True)
    sim.run_until_idle()
    key = sim.submit("b")
    assert sim.refusals[key].code is Code.ALL_PINNED
    assert "a" in sim.refusals[key].message
    assert sim.of_state(WorkerState.READY)


def test_a_full_queue_refuses_with_an_estimate() -> None:
    sim = loaded("a", queue_requests=3)
    for _ in range(5):
        sim.submit("a")
    key = sim.submit("a")
    assert sim.refusals[key].code is Code.OVERLOADED
    assert sim.refusals[key].retry_after >= 1.0


@pytest.mark.parametrize("seconds", [2.0, 6.0, 90.0])
@pytest.mark.parametrize("most", [3, 12])
def test_the_estimate_is_measured_service_time_times_those_ahead(seconds: float, most: int) -> None:
    sim = loaded("a", queue_requests=most)
    for _ in range(3):
        key = sim.submit("a")
        sim.pass_time(seconds)
        sim.finish(key)
    slots = sim.scheduler.models["a"].slots
    ahead = [sim.submit("a") for _ in range(slots + most)]
    command = sim.refusals[sim.submit("a")].retry_after
    assert command == pytest.approx(seconds * len(ahead) / slots)


def test_a_queue_full_of_bytes_refuses() -> None:
    sim = loaded("a", queue_bytes=100)
    for _ in range(3):
        sim.submit("a", size=90)
    assert sim.refusals[sim.submit("a", size=90)].code is Code.OVERLOADED


def test_a_cancelled_grant_ends_with_idle_not_with_the_cancel() -> None:
    sim = loaded("a")
    key = sim.submit("a")
    sim.cancel(key)
    assert sim.scheduler.granted == 1
    sim.finish(key, Code.CANCELLED)
    assert sim.scheduler.granted == 0


def test_a_hang_up_removes_a_request_from_the_queue() -> None:
    sim = loaded("a")
    keys = [sim.submit("a") for _ in range(3)]
    sim.cancel(keys[2])
    assert sim.scheduler.queued == 0


def test_load_is_idempotent_and_reloads_for_other_options() -> None:
    sim = loaded("a")
    worker = sim.serving("a")
    sim.load("a", 700)
    assert ("g1", 700) in sim.reports
    stream = sim.submit("a")
    sim.load("a", 701, options={"ctx_size": 8192})
    sim.run_until_idle()
    assert ("g1", 701) not in sim.reports
    assert sim.serving("a") == worker
    sim.finish(stream)
    sim.run_until_idle()
    assert ("g1", 701) in sim.reports
    assert sim.serving("a") != worker
    loads = [command for command in sim.workers[sim.serving("a")].commands if isinstance(command, StartEngine)]
    assert loads[-1].spec.options == {"ctx_size": 8192}


def test_unload_lets_the_stream_end_and_answers_when_it_is_gone() -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    assert sim.unload("a")
    sim.run_until_idle()
    assert ("g1", 901) not in sim.reports
    sim.finish(stream)
    sim.run_until_idle()
    assert sim.reports["g1", 901] == ["a"]
    assert not sim.unload("a", 902)


@pytest.mark.parametrize("models", [1, 2])
def test_unloading_while_loading_refuses_what_waits(models: int) -> None:
    sim = Simulation(models)
    key = sim.submit("a")
    while not sim.of_state(WorkerState.LOADING):
        assert sim.advance()
    assert sim.unload("a")
    assert sim.refusals[key].code is Code.UNLOADED


def test_two_waiting_models_evict_two_others() -> None:
    sim = loaded("a", "b", models=2)
    streams = [sim.submit("a"), sim.submit("b")]
    wants = [sim.submit("c"), sim.submit("d")]
    sim.run_until_idle()
    assert len(sim.of_state(WorkerState.DRAINING)) == 2
    for stream in streams:
        sim.finish(stream)
    sim.run_until_idle()
    assert sim.order == [*streams, *wants]


def test_a_drain_is_cancelled_when_capacity_becomes_free() -> None:
    sim = loaded("a", "b", models=2)
    on_a, on_b = sim.submit("a"), sim.submit("b")
    sim.submit("c")
    assert sim.of_state(WorkerState.DRAINING) == [sim.serving("a")]
    sim.finish(on_b)
    sim.run_until_idle()
    assert sim.scheduler.models["a"].process is not None
    assert sim.scheduler.models["a"].process.state is WorkerState.READY
    assert on_a not in sim.ended


def test_a_load_of_a_draining_model_is_answered_when_the_drain_is_called_off() -> None:
    sim = loaded("a")
    sim.submit("a")
    other = sim.submit("b")
    assert sim.of_state(WorkerState.DRAINING)
    sim.load("a", 700)
    assert ("g1", 700) not in sim.reports, "it is being drained"
    sim.cancel(other)
    sim.run_until_idle()
    assert sim.of_state(WorkerState.READY)
    assert ("g1", 700) in sim.reports
    assert not sim.scheduler.models["a"].loaders
    assert sim.scheduler.settled


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


def test_memory_evicts_idle_models_and_counts_what_they_give_back() -> None:
    sim = loaded("a", "b", models=3)
    for model in ("a", "b"):
        sim.scheduler.workers[sim.serving(model)].memory = 600
    key = sim.submit("c")
    sim.checked(sim.of_state(WorkerState.CHECKING)[0], need=500, available=100)
    sim.run_until_idle()
    assert key in sim.order
    assert sim.scheduler.models.get("a") is None
    assert sim.scheduler.models["b"].process is not None


def test_specs_that_differ_only_in_bookkeeping_are_the_same_engine() -> None:
    assert not needs_new_engine(spec("a"), spec("a", pinned=True, size=3))
    assert needs_new_engine(spec("a"), spec("a", options={"ctx_size": 1}))


def test_an_end_that_is_reported_late_is_no_later_use() -> None:
    sim = loaded("a", "b", models=2)
    key = sim.submit("a")
    sim.pass_time(1.0)
    sim.load("b", 801)
    sim.now += 0.008
    sim.finish(key)
    latest = sim.scheduler.latest(lambda _model: True)
    assert latest is not None
    assert latest.name == "b"


def test_a_load_of_a_loaded_model_counts_as_a_use() -> None:
    sim = loaded("a", "b", models=2)
    sim.pass_time(1.0)
    sim.load("a", 801)
    assert sim.scheduler.used() == ["a", "b"]
    waiting = sim.submit("c")
    sim.run_until_idle()
    assert waiting in sim.order
    assert sim.scheduler.models.get("b") is None


def test_the_last_use_is_remembered_after_an_unload() -> None:
    sim = loaded("a", "b", models=2)
    sim.pass_time(1.0)
    sim.finish(sim.submit("b"))
    sim.unload("b", 801)
    sim.run_until_idle()
    assert "b" not in sim.scheduler.models
    assert sim.scheduler.used() == ["b", "a"]
    sim.pass_time(1.0)
    sim.load("a", 802)
    assert sim.scheduler.used() == ["a", "b"]
    sim.scheduler.forget_use("b")
    assert sim.scheduler.used() == ["a"]
