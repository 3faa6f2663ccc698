"""Worker processes without a model: late ones are replaced, surplus ones stop, other versions are named."""

from __future__ import annotations

import pytest

from protocol import VERSION
from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.peers import Shutdown
from protocol.worker_states import WorkerState
from supervisor.scheduler.spare_workers import SLOW_START_S, SPARE_LINGER_S
from tests.supervisor.scheduler.simulation import Simulation, loaded

SPARE, SPAWNED = WorkerState.SPARE, WorkerState.SPAWNED


def pass_seconds(sim: Simulation, seconds: float) -> None:
    """Let time pass in the steps in which the supervisor reconciles."""
    for _ in range(int(seconds * 4) + 1):
        sim.pass_time(0.25)


def test_a_worker_that_never_reports_is_killed_and_replaced() -> None:
    sim = Simulation()
    (silent,) = sim.of_state(SPAWNED)
    pass_seconds(sim, sim.state.limits.hello_timeout)
    assert silent in sim.killed
    assert silent not in sim.of_state(SPAWNED)
    assert sim.state.counters["hello_timeouts"] >= 1
    note = next(note for note in sim.notes if note.event == "worker killed")
    assert (note.level, note.fields["worker"]) == ("error", silent)
    sim.worker_dies(silent)
    pass_seconds(sim, 2.0)
    sim.run_until_idle()
    assert sim.of_state(SPARE)


def test_a_load_does_not_wait_for_a_worker_that_never_reports() -> None:
    sim = Simulation()
    (silent,) = sim.of_state(SPAWNED)
    key = sim.submit("a")
    pass_seconds(sim, SLOW_START_S)
    other = next(worker for worker in sim.of_state(SPAWNED) if worker != silent)
    sim.hello(other)
    sim.checked(other)
    sim.ready(other)
    assert sim.order == [key]


def test_a_worker_that_reports_late_is_used() -> None:
    sim = Simulation()
    (late,) = sim.of_state(SPAWNED)
    pass_seconds(sim, sim.state.limits.hello_timeout - 1.0)
    sim.hello(late)
    assert late in sim.of_state(SPARE)
    assert not sim.killed


def test_the_number_of_workers_that_never_report_is_bounded() -> None:
    sim = Simulation()
    sim.submit("a")
    pass_seconds(sim, 120.0)
    assert len(sim.of_state(SPAWNED)) <= 5


def test_surplus_spares_stop_after_a_while() -> None:
    sim = Simulation()
    sim.run_until_idle()
    keys = [sim.submit(f"m{number}") for number in range(12)]
    sim.run_until_idle()
    for key in keys:
        if key in sim.live:
            sim.cancel(key)
    for key in [key for worker in sim.workers.values() for key in worker.running]:
        sim.finish(key)
    sim.run_until_idle()
    assert len(sim.of_state(SPARE)) > 3
    pass_seconds(sim, SPARE_LINGER_S)
    sim.run_until_idle()
    assert len(sim.of_state(SPARE)) == sim.state.limits.spares
    stopped = [each for worker in sim.workers.values() for each in worker.commands if isinstance(each, Shutdown)]
    assert not stopped, "those that were stopped have ended"


def test_a_spare_that_is_needed_stays() -> None:
    sim = loaded("a")
    sim.run_until_idle()
    pass_seconds(sim, 10 * SPARE_LINGER_S)
    assert len(sim.of_state(SPARE)) == sim.state.limits.spares


def test_a_worker_of_another_version_is_named_with_the_cure_and_refuses_what_waits() -> None:
    sim = Simulation()
    key = sim.submit("a")
    (worker,) = sim.of_state(SPAWNED)
    sim.load("b", 700)
    sim.other_version(worker, VERSION + 1)
    for refused in (key, RequestKey("g1", 700, 0)):
        assert sim.refusals[refused].code is Code.RESTART_NEEDED
        assert sim.refusals[refused].retry_after > 0
        assert "restart the server" in sim.refusals[refused].message
        assert f"protocol {VERSION + 1}, the running one {VERSION}" in sim.refusals[refused].message
    assert worker in sim.killed
    at_once = sim.submit("a")
    assert sim.refusals[at_once].code is Code.RESTART_NEEDED, "it does not wait for the next try"
    assert sim.state.spawn_problem is not None


def test_another_version_is_one_line_in_the_log() -> None:
    sim = Simulation()
    for _ in range(6):
        for worker in sim.of_state(SPAWNED):
            sim.other_version(worker, VERSION + 1)
            sim.worker_dies(worker)
        sim.pass_time(60.0)
    assert [note.level for note in sim.notes if note.event == "lemonbus was updated under this server"] == ["error"]


def test_models_that_are_loaded_are_served_while_another_version_is_installed() -> None:
    sim = loaded("a")
    sim.worker_dies(sim.of_state(SPARE)[0])
    sim.other_version(sim.of_state(SPAWNED)[0], VERSION + 1)
    key = sim.submit("a")
    assert key in sim.order


@pytest.mark.parametrize("load", [True, False])
def test_when_workers_report_again_all_is_well(load: bool) -> None:
    sim = Simulation()
    (worker,) = sim.of_state(SPAWNED)
    sim.other_version(worker, VERSION + 1)
    sim.worker_dies(worker)
    if load:
        sim.load("a", 701)
    else:
        sim.pass_time(60.0)
    sim.run_until_idle()
    key = sim.submit("a")
    sim.run_until_idle()
    assert sim.state.spawn_problem is None
    assert key in sim.order
