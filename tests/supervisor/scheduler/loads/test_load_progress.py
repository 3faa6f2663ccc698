"""What is shown of loads: their stages, ages and progress."""

from __future__ import annotations

from protocol.messages.engines import LoadProgressed, LoadStage, StartEngine
from protocol.messages.health import LoadInProgress
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.worker_states import WorkerState
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulation import Simulation, loaded


def shown(sim: Simulation) -> dict[str, LoadInProgress]:
    return {each.model: each for each in sim.scheduler.view.loads(sim.now)}


def test_a_load_goes_through_its_stages_and_gets_older() -> None:
    sim = Simulation()
    sim.submit("a")
    assert shown(sim) == {"a": LoadInProgress("a", LoadStage.QUEUED, 0.0, 1)}
    sim.pass_time(2.0)
    sim.advance_to(WorkerState.CHECKING)
    assert shown(sim) == {"a": LoadInProgress("a", LoadStage.CHECKING, 2.0, 1)}
    sim.pass_time(3.0)
    sim.load("a", 700)
    sim.advance_to(WorkerState.LOADING)
    assert shown(sim) == {"a": LoadInProgress("a", LoadStage.STARTING, 5.0, 2)}
    worker = sim.serving("a")
    assert StartEngine(spec("a"), age=5.0) in sim.workers[worker].commands, "the next supervisor will ask its worker"
    sim.scheduler.load_progressed(worker, LoadProgressed(LoadStage.LOADING, 3, 10, "tensors"))
    assert shown(sim) == {"a": LoadInProgress("a", LoadStage.LOADING, 5.0, 2, 3, 10, "tensors")}
    sim.scheduler.load_progressed(worker, LoadProgressed(LoadStage.WARMING_UP))
    assert shown(sim)["a"].stage is LoadStage.WARMING_UP
    sim.ready(worker)
    assert shown(sim) == {}


def test_it_says_whether_a_load_waits_for_memory_or_for_something_else() -> None:
    sim = Simulation(1, memory_reserve=0)
    sim.machine = {HOST: 100}
    sim.estimates = {name: MemoryEstimate({HOST: PlaceNeed(60)}) for name in "ab"}
    sim.load("a", 500)
    sim.run_until_idle()
    sim.submit("a")
    sim.submit("b")
    sim.run_until_idle()
    assert shown(sim)["b"].stage is LoadStage.WAITING, "only one model may be loaded"
    more = Simulation(2, memory_reserve=0)
    more.machine, more.estimates = sim.machine, sim.estimates
    more.load("a", 500)
    more.run_until_idle()
    more.submit("a")
    more.submit("b")
    more.run_until_idle()
    assert shown(more)["b"].stage is LoadStage.WAITING_FOR_MEMORY


def test_an_engine_that_starts_again_begins_a_new_load() -> None:
    sim = loaded("a")
    assert shown(sim) == {}
    worker = sim.serving("a")
    sim.pass_time(50.0)
    sim.engine_dies(worker)
    assert shown(sim) == {"a": LoadInProgress("a", LoadStage.STARTING, 0.0, 0)}
    sim.scheduler.load_progressed(worker, LoadProgressed(LoadStage.LOADING))
    sim.ready(worker)
    sim.scheduler.load_progressed(worker, LoadProgressed(LoadStage.LOADING))
    assert shown(sim) == {}, "what is left of the last load is ignored"
