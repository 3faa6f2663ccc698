"""Which models the scheduler evicts for others, and how requests for both are served in turn."""

from __future__ import annotations

from protocol.failures import Code
from protocol.worker_states import WorkerState
from tests.supervisor.scheduler.simulation import Simulation, loaded


def test_an_idle_model_is_evicted_for_another() -> None:
    sim = loaded("a")
    key = sim.submit("b")
    sim.run_until_idle()
    assert sim.order == [key]
    assert sim.state.models.get("a") is None


def test_a_busy_model_ends_its_stream_first_and_later_ones_wait_behind() -> None:
    sim = loaded("a")
    stream = sim.submit("a")
    for_b = sim.submit("b")
    second = sim.submit("a")
    assert sim.order == [stream], "the other model is only being checked"
    sim.run_until_idle()
    assert sim.order == [stream]
    assert sim.of_state(WorkerState.DRAINING) == [sim.serving("a")]
    sim.finish(stream)
    sim.run_until_idle()
    assert sim.order == [stream, for_b]
    sim.finish(for_b)
    sim.run_until_idle()
    assert sim.order == [stream, for_b, second]


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


def test_pinned_models_stay_and_are_named() -> None:
    sim = Simulation()
    sim.load("a", 500, pin=True)
    sim.run_until_idle()
    key = sim.submit("b")
    assert sim.refusals[key].code is Code.ALL_PINNED
    assert sim.refusals[key].detail == "pinned: a"
    assert sim.of_state(WorkerState.READY)


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
    assert sim.state.models["a"].worker is not None
    assert sim.state.models["a"].worker.state is WorkerState.READY
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
    assert not sim.state.models["a"].loaders
    assert sim.state.settled
