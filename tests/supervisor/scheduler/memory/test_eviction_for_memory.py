"""Tables for memory: which models are unloaded so that another one has enough, and which one never has."""

from __future__ import annotations

import pytest

from protocol.models.memory import HOST, Capacity, MemoryEstimate, PlaceNeed
from supervisor.scheduler.eviction import (
    Blocked,
    Evict,
    EvictionReason,
    Fits,
    Insufficient,
    LoadedModel,
    LoadLimits,
    LoadRequest,
    Verdict,
    Wait,
    decide_eviction,
)
from supervisor.scheduler.memory.fitting import AvailableMemory, ModelMemory
from tests.supervisor.scheduler.loaded_models import loaded_model, without_reasons

GPU = "0000:c4:00.0"


def needs(host: int = 0, gpu: int = 0, **more: object) -> MemoryEstimate:
    return MemoryEstimate({HOST: PlaceNeed(host), GPU: PlaceNeed(gpu)}, **more)  # type: ignore[arg-type]


def holds(host: int = 0, gpu: int = 0, share: float = 1.0) -> ModelMemory:
    """Return a model's memory, of which its engine holds this share already."""
    need = {HOST: host, GPU: gpu}
    return ModelMemory(need, {place: int(bytes_ * share) for place, bytes_ in need.items()})


def machine(host: int, gpu: int = 0, total: int = 100, reserve: int = 0, freeing: int = 0) -> LoadLimits:
    """Return limits of a machine with this much free memory."""
    capacities = {HOST: Capacity(HOST, total, host), GPU: Capacity(GPU, total, gpu)}
    return LoadLimits(9, AvailableMemory(capacities, reserve, reserve, {HOST: freeing}))


@pytest.mark.parametrize(
    ("request_", "loaded_models", "limits", "verdict"),
    [
        # it fits, or nothing is known about it
        (needs(40), [], machine(40), Fits()),
        (needs(), [loaded_model("a", memory=holds(90))], machine(0), Fits()),
        (needs(40), [loaded_model("a")], LoadLimits(9), Fits()),
        (needs(40), [], machine(45, reserve=5), Fits()),
        (needs(40), [loaded_model("a", memory=holds(50))], machine(44, reserve=5), Evict(["a"], [])),
        # as few idle ones as possible, of these the ones idle longest
        (needs(40), [loaded_model("a", memory=holds(50))], machine(10), Evict(["a"], [])),
        (
            needs(40),
            [loaded_model("a", 1.0, memory=holds(50)), loaded_model("b", 2.0, memory=holds(40))],
            machine(10),
            Evict(["a"], []),
        ),
        (
            needs(40),
            [loaded_model("a", 1.0, memory=holds(10)), loaded_model("b", 2.0, memory=holds(40))],
            machine(10),
            Evict(["b"], []),
        ),
        (
            needs(40),
            [loaded_model(name, at, memory=holds(15)) for at, name in enumerate("abc")],
            machine(10),
            Evict(["a", "b"], []),
        ),
        (needs(40), [loaded_model("a", memory=holds(50), type="embedding")], machine(10), Evict(["a"], [])),
        # what a loaded model will still touch is not free
        (needs(40), [loaded_model("a", memory=holds(50, share=0.0))], machine(80), Evict(["a"], [])),
        (needs(40), [loaded_model("a", memory=holds(50, share=0.5))], machine(65), Fits()),
        (needs(40), [loaded_model("a", memory=holds(50, share=0.5))], machine(64), Evict(["a"], [])),
        # one that is being loaded counts once, whatever part of its memory it holds, and is waited for
        (needs(40), [loaded_model("a", memory=holds(50, share=0.0), movable=False)], machine(90), Fits()),
        (needs(40), [loaded_model("a", memory=holds(50, share=0.5), movable=False)], machine(65), Fits()),
        (needs(40), [loaded_model("a", memory=holds(50, share=0.5), movable=False)], machine(64), Wait(memory=True)),
        # what leaves anyway is waited for, and so is what an ended engine gives back
        (needs(40), [loaded_model("a", memory=holds(50), leaving=True)], machine(10), Wait(memory=True)),
        (needs(40), [loaded_model("a", memory=holds(50, share=0.5), leaving=True)], machine(40), Fits()),
        (
            needs(40),
            [loaded_model("a", memory=holds(20), leaving=True), loaded_model("b", memory=holds(30))],
            machine(10),
            Evict(["b"], []),
        ),
        (needs(40), [loaded_model("a", memory=holds(50))], machine(10, freeing=30), Wait(memory=True)),
        # busy ones leave if idle ones do not suffice, and idle ones wait for them
        (
            needs(40),
            [loaded_model("a", 1.0, memory=holds(40), busy=True), loaded_model("b", 2.0, memory=holds(40))],
            machine(10),
            Evict(["b"], []),
        ),
        (needs(40), [loaded_model("a", memory=holds(50), busy=True)], machine(10), Evict(["a"], [], True)),
        (
            needs(80),
            [loaded_model("a", 1.0, memory=holds(40), busy=True), loaded_model("b", 2.0, memory=holds(40))],
            machine(10),
            Evict(["a", "b"], [], True),
        ),
        (
            needs(60),
            [loaded_model("a", 1.0, memory=holds(40), busy=True), loaded_model("b", 2.0, memory=holds(9))],
            machine(20),
            Evict(["a"], [], True),
        ),
        # places do not compete with each other
        (needs(gpu=40), [loaded_model("a", memory=holds(host=50))], machine(10, gpu=40), Fits()),
        (
            needs(gpu=40),
            [loaded_model("a", 1.0, memory=holds(host=50)), loaded_model("b", 2.0, memory=holds(gpu=50))],
            machine(10, gpu=10),
            Evict(["b"], []),
        ),
        (
            needs(host=20, gpu=40),
            [
                loaded_model("a", 1.0, memory=holds(host=50)),
                loaded_model("b", 2.0, memory=holds(gpu=50)),
                loaded_model("c", 3.0, memory=holds(host=20, gpu=50)),
            ],
            machine(10, gpu=10),
            Evict(["c"], []),
        ),
    ],
)
def test_which_models_leave_for_memory(
    request_: MemoryEstimate, loaded_models: list[LoadedModel], limits: LoadLimits, verdict: Verdict
) -> None:
    assert without_reasons(decide_eviction(LoadRequest("x", "llm", request_), loaded_models, limits)) == verdict


@pytest.mark.parametrize(
    ("request_", "loaded_models", "limits", "by_others"),
    [
        (needs(101), [loaded_model("a", memory=holds(50))], machine(50), False),
        (needs(96), [loaded_model("a", memory=holds(50))], machine(50, reserve=5), False),
        (needs(gpu=40), [], machine(90, gpu=30, total=35), False),
        (needs(95), [loaded_model("a", memory=holds(50))], machine(30), True),
        # not even a pinned one that leaves would help
        (needs(101), [loaded_model("a", memory=holds(50), pinned=True)], machine(50), False),
        # nor one that leaves or is loaded, or a slot that is free
        (needs(101), [loaded_model("a", memory=holds(50), leaving=True)], machine(50), False),
        (needs(101), [loaded_model("a", memory=holds(50), movable=False)], machine(50), False),
        (needs(101), [loaded_model(str(each)) for each in range(9)], machine(50), False),
    ],
)
def test_a_model_for_which_memory_never_suffices_evicts_nothing(
    request_: MemoryEstimate, loaded_models: list[LoadedModel], limits: LoadLimits, by_others: bool
) -> None:
    verdict = decide_eviction(LoadRequest("x", "llm", request_), loaded_models, limits)
    assert isinstance(verdict, Insufficient)
    assert verdict.shortfall.by_others == by_others


def test_pinned_models_that_hold_the_memory_are_named() -> None:
    loaded_models = [
        loaded_model("a", memory=holds(50), pinned=True),
        loaded_model("b", memory=holds(30)),
        loaded_model("c", memory=holds(gpu=30), pinned=True),
    ]
    verdict = decide_eviction(LoadRequest("x", "llm", needs(60)), loaded_models, machine(20, 70))
    assert isinstance(verdict, Blocked)
    assert (verdict.pins, verdict.reason) == (["a"], EvictionReason.MEMORY)
    assert verdict.shortfall is not None
    assert verdict.shortfall.most[HOST] == 50


@pytest.mark.parametrize(
    ("loaded_models", "free", "verdict"),
    [
        ([], 50_000, Fits(8_192)),
        ([], 26_000, Fits(5_888)),
        ([loaded_model("a", memory=holds(20_000, share=0.5))], 36_000, Fits(5_888)),
        ([], 10_193, Fits(2_048)),
        # other models leave for the smallest context, not for a larger one
        ([loaded_model("a", memory=holds(20_000))], 10_192, Fits(2_048)),
        ([loaded_model("a", memory=holds(20_000))], 10_191, Evict(["a"], [])),
    ],
)
def test_the_largest_context_that_fits_is_chosen(loaded_models: list[LoadedModel], free: int, verdict: Verdict) -> None:
    estimate = MemoryEstimate({HOST: PlaceNeed(2_000, 2.0)}, largest_context=8_192, slots=2)
    limits = machine(free, total=100_000)
    assert without_reasons(decide_eviction(LoadRequest("x", "llm", estimate), loaded_models, limits)) == verdict
