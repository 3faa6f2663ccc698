"""Histories of loads that fail, and of engines and workers that die: what is refused, what waits, what is tried again."""

from __future__ import annotations

import pytest

from protocol.failures import Code
from protocol.worker_states import WorkerState
from supervisor.scheduler.backoff import FORGIVEN_AFTER_PAUSES, BackoffPolicy
from supervisor.scheduler.crash_record import MAX_CRASHES, REMEMBERED_S
from tests.supervisor.scheduler.simulation import Simulation, loaded


def test_a_failed_check_evicts_no_model() -> None:
    sim = loaded("a")
    key = sim.submit("b")
    sim.load_fails(sim.of_state(WorkerState.CHECKING)[0])
    assert sim.refusals[key].code is Code.LOAD_FAILED
    assert sim.state.models["a"].worker is not None
    assert sim.state.models["a"].worker.state is WorkerState.READY


def test_a_failed_start_evicts_one_then_backs_off_and_displaces_no_model() -> None:
    sim = loaded("a", "c", models=2)
    first = sim.submit("b")
    while not sim.of_state(WorkerState.LOADING):
        assert sim.advance()
    sim.load_fails(sim.of_state(WorkerState.LOADING)[0])
    assert sim.refusals[first].retry_after == 1.0
    assert sim.state.models["c"].worker is not None
    at_once = sim.submit("b")
    assert sim.refusals[at_once].code is Code.BACKING_OFF
    sim.load("a", 600)
    sim.run_until_idle()
    sim.pass_time(5.0)
    later = sim.submit("b")
    sim.run_until_idle()
    assert sim.refusals[later].code is Code.BACKING_OFF
    assert sim.refusals[later].retry_after == pytest.approx(FORGIVEN_AFTER_PAUSES * BackoffPolicy().most - 5.0)
    assert {model.name for model in sim.state.models.values() if model.worker} == {"a", "c"}
    sim.load("b", 601)
    sim.run_until_idle()
    assert sim.state.models["b"].worker is not None


def test_pauses_double() -> None:
    sim = Simulation()
    pauses = []
    for _ in range(8):
        sim.submit("a")
        while not sim.of_state(WorkerState.LOADING):
            assert sim.advance()
        sim.load_fails(sim.of_state(WorkerState.LOADING)[0])
        pauses.append(sim.state.models["a"].backoff.pause(sim.now))
        sim.run_until_idle()
        sim.pass_time(pauses[-1])
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_an_engine_that_dies_is_started_again_without_a_request() -> None:
    sim = loaded("a")
    worker = sim.serving("a")
    sim.engine_dies(worker)
    assert sim.of_state(WorkerState.LOADING) == [worker]
    sim.run_until_idle()
    assert sim.of_state(WorkerState.READY) == [worker]


KILLED_FOR_MEMORY = pytest.mark.parametrize(
    ("code", "killed"),
    [(Code.OUT_OF_MEMORY, True), (Code.BACKEND_DIED, True), (Code.OUT_OF_MEMORY, False)],
    ids=["by the kernel", "from outside", "over its limit"],
)


@KILLED_FOR_MEMORY
def test_an_idle_engine_that_is_killed_for_memory_stays_unloaded_until_it_is_asked_for(
    code: Code, killed: bool
) -> None:
    sim = loaded("a", "b", models=2)
    sim.engine_dies(sim.serving("a"), code=code, killed=killed)
    sim.run_until_idle()
    assert not sim.state.models.keys() & {"a"}
    assert sim.serving("b")
    assert not sim.of_state(WorkerState.LOADING)
    (known,) = sim.scheduler.view.failed_models(sim.now)
    assert (known.model, known.failure.code, known.retry_in) == ("a", code, 0.0)
    assert "stays unloaded until it is asked for" in known.failure.message
    key = sim.submit("a")
    sim.run_until_idle()
    assert key in sim.order
    assert not sim.scheduler.view.failed_models(sim.now)


@KILLED_FOR_MEMORY
def test_deaths_of_idle_engines_for_memory_open_no_breaker(code: Code, killed: bool) -> None:
    sim = Simulation()
    for number in range(30):
        sim.load("a", number)
        sim.run_until_idle()
        sim.engine_dies(sim.serving("a"), code=code, killed=killed)
        sim.run_until_idle()
    assert not sim.refusals


def test_a_busy_engine_that_the_kernel_kills_is_loaded_again_like_any_other_model() -> None:
    sim = loaded("a")
    key = sim.submit("a")
    worker = sim.serving("a")
    sim.engine_dies(worker, of_requests=True, code=Code.OUT_OF_MEMORY, killed=True)
    assert sim.of_state(WorkerState.LEAVING) == [worker], "no engine is started in place"
    again = sim.retry(key)
    sim.run_until_idle()
    assert again in sim.order
    assert sim.serving("a") != worker, "its need was compared with the free memory by another check"


def test_a_busy_engine_that_is_killed_from_outside_is_started_again_in_place() -> None:
    sim = loaded("a")
    sim.submit("a")
    worker = sim.serving("a")
    sim.engine_dies(worker, killed=True)
    assert sim.of_state(WorkerState.LOADING) == [worker]


def test_a_worker_that_dies_is_replaced_without_a_request() -> None:
    sim = loaded("a")
    worker = sim.serving("a")
    sim.worker_dies(worker)
    sim.run_until_idle()
    assert sim.serving("a") != worker


@pytest.mark.parametrize("state", [WorkerState.CHECKING, WorkerState.LOADING])
def test_a_worker_that_dies_while_loading_is_replaced_and_no_request_is_refused(state: WorkerState) -> None:
    sim = Simulation()
    key = sim.submit("a")
    for _ in range(8):
        while not sim.of_state(state):
            assert sim.advance()
        sim.worker_dies(sim.of_state(state)[0])
    sim.run_until_idle()
    assert sim.order == [key]
    assert not sim.refusals


def test_workers_that_die_of_a_load_again_and_again_open_the_breaker() -> None:
    sim = Simulation()
    key = sim.submit("a")
    while sim.live:
        if not sim.of_state(WorkerState.CHECKING):
            assert sim.advance()
            continue
        sim.worker_dies(sim.of_state(WorkerState.CHECKING)[0])
    assert sim.refusals[key].code is Code.BREAKER_OPEN


def test_a_worker_that_was_ended_before_its_hello_may_still_say_it() -> None:
    sim = Simulation()
    worker = sim.of_state(WorkerState.SPAWNED)[0]
    sim.pass_time(21.0)
    assert sim.killed == [worker]
    sim.hello(worker)
    assert sim.of_state(WorkerState.LEAVING) == [worker]


def test_each_death_is_remembered_whatever_follows_from_it() -> None:
    sim = loaded("a")
    sim.engine_dies(sim.serving("a"))
    sim.run_until_idle()
    sim.worker_dies(sim.serving("a"))
    sim.run_until_idle()
    sim.engine_dies(sim.serving("a"), code=Code.OUT_OF_MEMORY, killed=True)
    assert sim.deaths == [("a", Code.BACKEND_DIED), ("a", Code.WORKER_GONE), ("a", Code.OUT_OF_MEMORY)]


def test_the_breaker_opens_after_too_many_deaths() -> None:
    sim = loaded("a")
    for _ in range(20):
        sim.engine_dies(sim.serving("a"))
        sim.run_until_idle()
    assert sim.of_state(WorkerState.READY)
    sim.engine_dies(sim.serving("a"))
    sim.run_until_idle()
    key = sim.submit("a")
    assert sim.refusals[key].code is Code.BREAKER_OPEN
    assert sim.refusals[key].retry_after == 60.0
    sim.pass_time(60.0)
    key = sim.submit("a")
    sim.run_until_idle()
    assert key in sim.order


def test_a_model_whose_engine_died_at_work_is_not_said_to_have_failed_to_load() -> None:
    sim = loaded("a")
    for _ in range(21):
        sim.engine_dies(sim.serving("a"))
        sim.run_until_idle()
    sim.pass_time(60.0)
    sim.load("b", 600)
    sim.run_until_idle()
    key = sim.submit("a")
    sim.run_until_idle()
    assert sim.refusals[key].code is Code.BREAKER_OPEN
    assert "lost its engine too often, so it displaces no other model" in sim.refusals[key].message
    assert "loaded last time" not in sim.refusals[key].message


def test_suspects_run_alone_and_keep_their_queue_position() -> None:
    sim = loaded("a")
    keys = [sim.submit("a"), sim.submit("a")]
    waiting = sim.submit("a")
    sim.engine_dies(sim.serving("a"))
    retries = [sim.retry(key) for key in keys]
    sim.run_until_idle()
    assert sim.order == [*keys, retries[0]]
    sim.finish(retries[0])
    assert sim.order == [*keys, *retries]
    sim.finish(retries[1])
    assert sim.order == [*keys, *retries, waiting]


def test_workers_that_never_start_are_not_waited_for() -> None:
    sim = Simulation()
    for worker in list(sim.workers):
        sim.worker_dies(worker)
    sim.pass_time(1.0)
    key = sim.submit("a")
    for _ in range(2):
        for worker in list(sim.workers):
            sim.worker_dies(worker)
        sim.pass_time(2.0)
    assert sim.refusals[key].code is Code.LOAD_FAILED
    sim.pass_time(60.0)
    key = sim.submit("a")
    sim.run_until_idle()
    assert sim.order == [key]


def crash(sim: Simulation, caller: str, digest: str) -> None:
    """A request ends the engine of ``a``, which is started again."""
    key = sim.submit("a", caller=caller, digest=digest)
    assert sim.engine_dies(sim.serving("a"), of_requests=True) == [key]
    sim.run_until_idle()


def test_a_request_that_an_engine_died_of_is_refused_its_client_alone() -> None:
    sim = loaded("a")
    crash(sim, "attacker", "one")
    again = sim.submit("a", caller="attacker", digest="one")
    assert sim.refusals[again].http_status == 400
    sim.finish(sim.submit("a", caller="attacker", digest="two"))
    sim.finish(sim.submit("a", caller="other", digest="one"))


def test_the_requests_of_one_client_do_not_open_the_breaker() -> None:
    sim = loaded("a")
    for turn in range(MAX_CRASHES):
        crash(sim, "attacker", f"d{turn}")
    for turn in range(3 * BackoffPolicy().deaths):
        key = sim.submit("a", caller="attacker", digest=f"later {turn}")
        assert sim.refusals[key].code is Code.RATE_LIMITED
    sim.finish(sim.submit("a", caller="other"))
    sim.pass_time(REMEMBERED_S)
    sim.finish(sim.submit("a", caller="attacker", digest="one"))


def test_an_engine_that_dies_of_the_requests_of_many_opens_the_breaker() -> None:
    sim = loaded("a")
    for turn in range(BackoffPolicy().deaths):
        crash(sim, f"k{turn}", "d")
    key = sim.submit("a", caller="last", digest="d")
    sim.engine_dies(sim.serving("a"), of_requests=True)
    again = sim.submit("a", caller="other")
    assert sim.refusals[again].code is Code.BREAKER_OPEN
    assert key not in sim.live


def test_a_load_forgets_who_crashed_the_engine() -> None:
    sim = loaded("a")
    crash(sim, "attacker", "one")
    sim.load("a")
    sim.finish(sim.submit("a", caller="attacker", digest="one"))
