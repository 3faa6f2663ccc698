"""How the scheduler counts memory: over several loads, while engines take it and give it back, and what it says of evictions."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from protocol.messages.engines import StartEngine
from protocol.models.memory import HOST, MemoryEstimate, PlaceNeed
from protocol.worker_states import WorkerState
from supervisor.scheduler.memory.known_memory import FREEING_S
from tests.supervisor.scheduler.effect_player import spec
from tests.supervisor.scheduler.simulation import Simulation

GPU = "0000:c4:00.0"


def machine(host: int, gpu: int = 0, models: str = "", **needs: int) -> Simulation:
    """Return a machine with this memory; ``needs``: model → bytes of the host. ``models`` are loaded in this order."""
    sim = Simulation(9, memory_reserve=0, device_memory_reserve=0)
    sim.machine = {HOST: host, GPU: gpu}
    sim.estimates = {name: MemoryEstimate({HOST: PlaceNeed(need)}) for name, need in needs.items()}
    for number, name in enumerate(models, 500):
        sim.pass_time(1.0)
        sim.load(name, number)
        sim.run_until_idle()
    return sim


def loaded(sim: Simulation) -> set[str]:
    return {model.name for model in sim.state.models.values() if model.state == "ready"}


def events(sim: Simulation, event: str) -> list[dict[str, object]]:
    return [note.fields for note in sim.notes if note.event == event]


def test_the_fewest_models_leave_and_of_these_the_ones_idle_longest() -> None:
    sim = machine(100, models="abc", a=20, b=40, c=40, d=40)
    key = sim.submit("d")
    sim.run_until_idle()
    assert key in sim.order
    assert loaded(sim) == {"a", "c", "d"}


def test_an_eviction_is_told_with_what_it_was_for_and_what_it_freed() -> None:
    sim = machine(100, models="ab", a=60, b=30, c=50)
    sim.pass_time(20.0)
    sim.submit("c")
    sim.run_until_idle()
    evicted = {"model": "a", "for_model": "c", "for_request": "label", "reason": "memory", "idle_s": 21.0}
    before, after = {HOST: 10, GPU: 0}, {HOST: 70, GPU: 0}
    memory = {"freed": {HOST: 60, GPU: 0}, "free_before": before, "free_after": after}
    assert events(sim, "model evicted") == [evicted | memory]


def test_a_model_that_never_fits_is_refused_at_once_and_evicts_nothing() -> None:
    sim = machine(15 << 30, models="ab", a=4 << 30, b=4 << 30, c=31 << 30)
    key = sim.submit("c")
    sim.run_until_idle()
    refused = sim.refusals[key]
    assert refused.code is Code.INSUFFICIENT_MEMORY
    assert (refused.http_status, refused.final) == (507, True)
    assert "needs 33.3 GB of this machine's memory, which has 16.1 GB; 7.5 GB are free now" in refused.message
    assert loaded(sim) == {"a", "b"}
    assert not events(sim, "model drains")
    assert [failed.failure for failed in sim.scheduler.view.failed_models(sim.now)] == [refused]


@pytest.mark.parametrize(
    ("place", "reserve", "need", "change"),
    [
        (HOST, 0, PlaceNeed(101), "Choose a smaller quantization"),
        (HOST, 10**15, PlaceNeed(20, 0.0045), "It would fit with a lower memory_reserve. No"),
        (HOST, 30, PlaceNeed(20, 0.0045), "with ctx_size 2560 or with 2 of 4 slots or with a lower memory_reserve. No"),
        (HOST, 10, PlaceNeed(20, 0.0045), "with ctx_size 3840 or with 3 of 4 slots or with a lower memory_reserve. No"),
        (HOST, -1, PlaceNeed(20, 0.0047), "It would fit with ctx_size 3840 or with 3 of 4 slots. No"),
        (GPU, 30, PlaceNeed(20, 0.0045), "or with a lower device_memory_reserve. No"),
    ],
)
def test_a_refusal_says_what_could_be_changed(place: str, reserve: int, need: PlaceNeed, change: str) -> None:
    sim = Simulation(9, memory_reserve=reserve, device_memory_reserve=reserve)
    sim.machine = {HOST: 100, GPU: 100}
    sim.estimates = {"a": MemoryEstimate({place: need}, context=4096, slots=4)}
    key = sim.submit("a")
    sim.run_until_idle()
    assert change in sim.refusals[key].message


def test_memory_that_other_programs_hold_is_asked_for_again_later() -> None:
    sim = machine(100, a=90)
    sim.others = {HOST: 50}
    refused = sim.submit("a")
    sim.run_until_idle()
    assert sim.refusals[refused].retry_after > 0
    assert not sim.refusals[refused].final
    assert "Other programs hold the rest" in sim.refusals[refused].message
    sim.others = {}
    sim.pass_time(1.0)
    served = sim.submit("a")
    sim.run_until_idle()
    assert served in sim.order


def test_pinned_models_that_hold_the_memory_are_named_with_numbers() -> None:
    sim = machine(100 << 30, models="ab", a=60 << 30, b=30 << 30, c=50 << 30)
    sim.pin("a")
    key = sim.submit("c")
    sim.run_until_idle()
    refused = sim.refusals[key]
    assert (refused.code, refused.detail) == (Code.ALL_PINNED, "pinned: a")
    assert "53.7 GB" in refused.message
    assert loaded(sim) == {"a", "b"}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_model_that_is_being_loaded_counts_once(share: float) -> None:
    sim = machine(100, a=60, b=40, c=41)
    sim.load("a", 600)
    sim.advance_to(WorkerState.LOADING)
    sim.touch(sim.serving("a"), share)
    sim.load("c", 601)
    sim.load("b", 602)
    for _ in range(20):
        for worker in sim.of_state(WorkerState.SPAWNED):
            sim.hello(worker)
        for worker in sim.of_state(WorkerState.CHECKING):
            sim.checked(worker)
    states = {name: sim.state.models[name].state for name in "abc"}
    assert states == {"a": "loading", "b": "checked", "c": "checked"}, "the first one in the queue gets the memory"
    sim.unload("c", 603)
    assert sim.state.models["b"].state == "loading"


def test_two_loads_at_once_share_what_is_free() -> None:
    sim = machine(100, a=60, b=60)
    sim.load("a", 600)
    sim.load("b", 601)
    for _ in range(20):
        for worker in sim.of_state(WorkerState.SPAWNED):
            sim.hello(worker)
        for worker in sim.of_state(WorkerState.CHECKING):
            sim.checked(worker)
    assert [sim.state.models[name].state for name in "ab"] == ["loading", "checked"]
    sim.run_until_idle()
    assert loaded(sim) == {"b"}, "the other one was idle"


def test_a_busy_model_ends_its_requests_before_it_leaves_and_idle_ones_stay_until_then() -> None:
    sim = machine(100, models="ab", a=60, b=40, c=100)
    stream = sim.submit("a")
    key = sim.submit("c")
    sim.run_until_idle()
    later = sim.submit("b")
    assert sim.order == [stream]
    assert {sim.state.models[name].state for name in "ab"} == {"draining"}
    assert not events(sim, "model evicted"), "without the busy one, it would not help"
    sim.finish(stream)
    sim.run_until_idle()
    assert sim.order == [stream, key]
    sim.finish(key)
    sim.run_until_idle()
    assert sim.order == [stream, key, later]


def test_memory_that_an_ended_engine_gives_back_late_is_waited_for() -> None:
    sim = machine(100, models="ab", a=50, b=50, c=50)
    key = sim.submit("c")
    sim.advance_to(WorkerState.LEAVING)
    sim.others = {HOST: 50}  # the kernel is still freeing what the engine held
    sim.run_until_idle()
    assert key not in sim.order
    assert loaded(sim) == {"b"}, "another one would leave for nothing"
    sim.others = {}
    sim.pass_time(FREEING_S / 2)
    sim.run_until_idle()
    assert key in sim.order
    assert loaded(sim) == {"b", "c"}


@pytest.mark.parametrize("rest", [0, 15])
def test_an_engine_that_shows_no_memory_any_more_is_still_giving_it_back(rest: int) -> None:
    sim = machine(100, models="ad", d=rest, b=60)
    engine = sim.workers[sim.serving("a")]
    engine.held = {HOST: 80}  # far more than was expected
    sim.pass_time(1.0)
    key = sim.submit("b")
    sim.advance_to(WorkerState.LEAVING)
    engine.held, sim.others = {}, {HOST: 75}  # the process ends
    sim.pass_time(FREEING_S / 2)
    assert not sim.refusals
    assert loaded(sim) == {"d"}, "it leaves only if it must"
    sim.others = {}
    sim.run_until_idle()
    assert key in sim.order
    assert loaded(sim) == {"b", "d"}


def test_an_engine_that_starts_again_keeps_its_memory_and_its_context() -> None:
    sim = machine(10_000)
    sim.estimates["a"] = MemoryEstimate({HOST: PlaceNeed(1_000, 1.0)}, largest_context=8_192)
    sim.load("a", 600)
    sim.run_until_idle()
    worker = sim.serving("a")
    sim.engine_dies(worker)
    orders = [command for command in sim.workers[worker].commands if isinstance(command, StartEngine)]
    assert orders == [StartEngine(spec("a"), 8_192, {HOST: 9_192})] * 2
    sim.estimates["b"] = MemoryEstimate({HOST: PlaceNeed(900)})
    sim.load("b", 601)
    sim.run_until_idle()
    assert loaded(sim) == {"b"}, "the restarted one was idle when the other one was checked"


def test_options_that_need_too_much_leave_the_model_with_its_former_ones() -> None:
    sim = machine(100, models="a", a=40)
    sim.estimates["a"] = MemoryEstimate({HOST: PlaceNeed(140)})
    sim.load("a", 600, options={"ctx_size": 9_999})
    sim.advance_to(WorkerState.CHECKING)
    sim.checked(sim.of_state(WorkerState.CHECKING)[0])
    refused = next(failure for key, failure in sim.refusals.items() if key.number == 600)
    assert (refused.code, refused.http_status) == (Code.INSUFFICIENT_MEMORY, 507)
    sim.estimates["a"] = MemoryEstimate({HOST: PlaceNeed(40)})
    sim.run_until_idle()
    assert loaded(sim) == {"a"}
    assert sim.state.models["a"].spec == spec("a")


def test_a_model_of_another_place_stays() -> None:
    sim = machine(100, 100, a=60)
    sim.estimates["g"] = MemoryEstimate({GPU: PlaceNeed(80)})
    sim.estimates["h"] = MemoryEstimate({GPU: PlaceNeed(80), HOST: PlaceNeed(10)})
    for number, name in enumerate("agh", 600):
        sim.pass_time(1.0)
        sim.load(name, number)
        sim.run_until_idle()
    assert loaded(sim) == {"a", "h"}


def test_a_worker_that_dies_gives_its_memory_back() -> None:
    sim = machine(100, models="a", a=60, b=60)
    sim.worker_dies(sim.serving("a"))
    sim.unload("a")
    sim.load("b", 601)
    sim.run_until_idle()
    assert loaded(sim) == {"b"}
    assert not events(sim, "model evicted")


def test_a_failed_load_gives_its_memory_back() -> None:
    sim = machine(100, a=60, b=60)
    sim.load("a", 600)
    sim.load("b", 601)
    sim.advance_to(WorkerState.LOADING)
    sim.touch(sim.serving("a"), 0.7)
    sim.load_fails(sim.serving("a"), Failure(Code.LOAD_FAILED, "no"))
    sim.run_until_idle()
    assert loaded(sim) == {"b"}
