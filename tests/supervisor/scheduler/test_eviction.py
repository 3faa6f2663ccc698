"""Tables for the eviction policy: which models are unloaded so that another one can be loaded."""

from __future__ import annotations

import pytest

from protocol.models.memory import HOST, Capacity, MemoryEstimate, PlaceNeed
from protocol.models.recipes import NpuSharing
from supervisor.scheduler.eviction import (
    Blocked,
    Evict,
    EvictionReason,
    Fits,
    LoadedModel,
    LoadLimits,
    LoadRequest,
    Verdict,
    Wait,
    decide_eviction,
)
from supervisor.scheduler.loads.over_limits import models_over_limits
from supervisor.scheduler.memory.fitting import AvailableMemory, ModelMemory
from supervisor.scheduler.policy import GroupPolicy
from tests.supervisor.scheduler.loaded_models import loaded_model, without_reasons
from workers.backends.registry import DESCRIPTORS


@pytest.mark.parametrize(
    ("loaded_models", "limits", "verdict"),
    [
        ([], LoadLimits(1), Fits()),
        ([loaded_model("a")], LoadLimits(2), Fits()),
        ([loaded_model("a", type="embedding")], LoadLimits(1), Fits()),
        ([loaded_model("a")], LoadLimits(1), Evict(["a"], [])),
        ([loaded_model("a", 2.0), loaded_model("b", 1.0)], LoadLimits(2), Evict(["b"], [])),
        ([loaded_model("a", 2.0), loaded_model("b", 1.0, busy=True)], LoadLimits(2), Evict(["a"], [])),
        ([loaded_model("a", 2.0, busy=True), loaded_model("b", 1.0, busy=True)], LoadLimits(2), Evict(["b"], [])),
        (
            [loaded_model("a", 2.0, busy=True, draining=True), loaded_model("b", 1.0, busy=True)],
            LoadLimits(2),
            Evict(["a"], []),
        ),
        ([loaded_model("a", pinned=True), loaded_model("b", 1.0)], LoadLimits(2), Evict(["b"], [])),
        (
            [loaded_model("b", pinned=True), loaded_model("a", pinned=True)],
            LoadLimits(2),
            Blocked(["a", "b"], EvictionReason.LIMIT),
        ),
        ([loaded_model("a", movable=False)], LoadLimits(1), Wait()),
        ([loaded_model("a", leaving=True)], LoadLimits(1), Wait()),
        ([loaded_model("a", pinned=True), loaded_model("b", movable=False)], LoadLimits(2), Wait()),
    ],
)
def test_eviction_order(loaded_models: list[LoadedModel], limits: LoadLimits, verdict: Verdict) -> None:
    assert without_reasons(decide_eviction(LoadRequest("x", "llm"), loaded_models, limits)) == verdict


EXCLUSIVE, SHARED = NpuSharing.EXCLUSIVE, NpuSharing.PER_TYPE


@pytest.mark.parametrize(
    ("npu", "loaded_models", "capacity", "verdict"),
    [
        # models that are not on the NPU, and a request that is not for it
        (EXCLUSIVE, [loaded_model("a", type="image")], LoadLimits(4), Fits()),
        ("", [loaded_model("a", npu=EXCLUSIVE)], LoadLimits(4), Fits()),
        # alone means alone, whatever the type
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE)], LoadLimits(4), Evict(["a"], [])),
        (EXCLUSIVE, [loaded_model("a", type="image", npu=EXCLUSIVE)], LoadLimits(4), Evict(["a"], [])),
        (
            EXCLUSIVE,
            [loaded_model("a", npu=SHARED), loaded_model("b", type="image", npu=SHARED)],
            LoadLimits(4),
            Evict(["a", "b"], []),
        ),
        (SHARED, [loaded_model("a", type="image", npu=EXCLUSIVE)], LoadLimits(4), Evict(["a"], [])),
        # one of each type
        (SHARED, [loaded_model("a", type="image", npu=SHARED)], LoadLimits(4), Fits()),
        (
            SHARED,
            [loaded_model("a", npu=SHARED), loaded_model("b", type="image", npu=SHARED)],
            LoadLimits(4),
            Evict(["a"], []),
        ),
        # busy ones too, but none that is pinned or being loaded
        (EXCLUSIVE, [loaded_model("a", busy=True, npu=EXCLUSIVE)], LoadLimits(4), Evict(["a"], [])),
        (
            EXCLUSIVE,
            [loaded_model("a", npu=EXCLUSIVE, pinned=True), loaded_model("b", type="image", npu=SHARED)],
            LoadLimits(4),
            Blocked(["a"], EvictionReason.NPU),
        ),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, movable=False)], LoadLimits(4), Wait()),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, leaving=True)], LoadLimits(4), Wait()),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, leaving=True, pinned=True)], LoadLimits(4), Wait()),
        # a model evicted from the NPU also counts towards its type
        (EXCLUSIVE, [loaded_model("a", 2.0, npu=EXCLUSIVE), loaded_model("b", 1.0)], LoadLimits(2), Evict(["a"], [])),
        (
            EXCLUSIVE,
            [loaded_model("a", 2.0, type="image", npu=EXCLUSIVE), loaded_model("b", 1.0)],
            LoadLimits(1),
            Evict(["a", "b"], []),
        ),
    ],
)
def test_eviction_order_on_the_npu(
    npu: str, loaded_models: list[LoadedModel], capacity: LoadLimits, verdict: Verdict
) -> None:
    assert without_reasons(decide_eviction(LoadRequest("x", "llm", npu=npu), loaded_models, capacity)) == verdict


G, H, BOTH = frozenset("g"), frozenset("h"), frozenset("gh")
SWAP, TWO, EXCLUSIVE_GROUP = GroupPolicy(swap=True), GroupPolicy(max_loaded=2), GroupPolicy(exclusive=True)


@pytest.mark.parametrize(
    ("groups", "rules", "loaded_models", "verdict"),
    [
        # one of the group
        (G, {"g": SWAP}, [loaded_model("a", groups=G)], Evict(["a"], [])),
        (G, {"g": SWAP}, [loaded_model("a", groups=G, busy=True)], Evict(["a"], [])),
        (G, {"g": SWAP}, [loaded_model("a", groups=G, type="image")], Evict(["a"], [])),
        (G, {"g": SWAP}, [loaded_model("a", groups=G, leaving=True)], Wait()),
        (G, {"g": SWAP}, [loaded_model("a", groups=G, movable=False)], Wait()),
        (G, {"g": SWAP}, [loaded_model("a", groups=G, pinned=True)], Blocked(["a"], EvictionReason.GROUP)),
        (G, {"g": SWAP}, [loaded_model("a", groups=H), loaded_model("b")], Fits()),
        (frozenset(), {"g": SWAP}, [loaded_model("a", groups=G)], Fits()),
        (G, {"g": SWAP._replace(max_loaded=3)}, [loaded_model("a", groups=G)], Evict(["a"], [])),
        # the group's limit
        (G, {"g": TWO}, [loaded_model("a", groups=G)], Fits()),
        (G, {"g": TWO}, [loaded_model("a", 2.0, groups=G), loaded_model("b", 1.0, groups=G)], Evict(["b"], [])),
        (
            G,
            {"g": TWO},
            [loaded_model("a", groups=G, pinned=True), loaded_model("b", groups=G, pinned=True)],
            Blocked(["a", "b"], EvictionReason.GROUP),
        ),
        (G, {"g": TWO}, [loaded_model(name, groups=G) for name in "abc"], Evict(["a", "b"], [])),
        (
            G,
            {"g": TWO},
            [*(loaded_model(name, groups=G, pinned=True) for name in "ab"), loaded_model("c", groups=G)],
            Blocked(["a", "b"], EvictionReason.GROUP),
        ),
        # alone as a group, both ways
        (G, {"g": EXCLUSIVE_GROUP}, [loaded_model("a", groups=G)], Fits()),
        (G, {"g": EXCLUSIVE_GROUP}, [loaded_model("a"), loaded_model("b", groups=H)], Evict(["a", "b"], [])),
        (frozenset(), {"g": EXCLUSIVE_GROUP}, [loaded_model("a", groups=G, busy=True)], Evict(["a"], [])),
        (H, {"g": EXCLUSIVE_GROUP}, [loaded_model("a", groups=G), loaded_model("b", groups=H)], Evict(["a"], [])),
        (BOTH, {"g": EXCLUSIVE_GROUP, "h": TWO}, [loaded_model("a", groups=G)], Fits()),
        (G, {"g": EXCLUSIVE_GROUP}, [loaded_model("a", pinned=True)], Blocked(["a"], EvictionReason.GROUP)),
        (G, {"g": EXCLUSIVE_GROUP}, [loaded_model("a", leaving=True, pinned=True)], Wait()),
        (G, {"g": EXCLUSIVE_GROUP}, [loaded_model("a", movable=False), loaded_model("b")], Wait()),
    ],
)
def test_eviction_order_in_groups(
    groups: frozenset[str], rules: dict[str, GroupPolicy], loaded_models: list[LoadedModel], verdict: Verdict
) -> None:
    request = LoadRequest("x", "llm", groups=groups)
    assert without_reasons(decide_eviction(request, loaded_models, LoadLimits(4, groups=rules))) == verdict


@pytest.mark.parametrize(
    ("rules", "loaded_models", "leaving"),
    [
        ({}, [loaded_model("a", groups=G), loaded_model("b", groups=G)], []),
        ({"g": SWAP}, [loaded_model("a", 2.0, groups=G), loaded_model("b", 1.0, groups=G)], ["b"]),
        ({"g": SWAP}, [loaded_model("a", 2.0, groups=G), loaded_model("b", 1.0, groups=G, busy=True)], ["a"]),
        ({"g": SWAP}, [loaded_model("a", groups=G, leaving=True), loaded_model("b", groups=G)], []),
        ({"g": SWAP}, [loaded_model("a", 1.0, groups=G, pinned=True), loaded_model("b", 2.0, groups=G)], ["b"]),
        ({"g": SWAP}, [loaded_model(name, groups=G, pinned=True) for name in "ab"], []),
        ({"g": TWO}, [loaded_model(name, float(index), groups=G) for index, name in enumerate("abcd")], ["a", "b"]),
        ({"g": EXCLUSIVE_GROUP}, [loaded_model("a", 1.0, groups=G), loaded_model("b", 2.0)], ["a"]),
        ({"g": EXCLUSIVE_GROUP}, [loaded_model("a", 2.0, groups=G), loaded_model("b", 1.0)], ["b"]),
        ({"g": EXCLUSIVE_GROUP}, [loaded_model("a", 1.0, groups=G, busy=True), loaded_model("b", 2.0)], ["b"]),
        (
            {"g": EXCLUSIVE_GROUP},
            [loaded_model("a", 2.0, groups=G, busy=True, draining=True), loaded_model("b", 1.0)],
            ["a"],
        ),
        ({"g": EXCLUSIVE_GROUP}, [loaded_model("a", 1.0, groups=G, pinned=True), loaded_model("b", 2.0)], ["b"]),
        ({"g": EXCLUSIVE_GROUP}, [loaded_model("a", groups=G, pinned=True), loaded_model("b", pinned=True)], []),
    ],
)
def test_which_models_leave_when_groups_have_changed(
    rules: dict[str, GroupPolicy], loaded_models: list[LoadedModel], leaving: list[str]
) -> None:
    assert models_over_limits(loaded_models, 4, rules) == dict.fromkeys(leaving, EvictionReason.GROUP)


def test_models_over_a_lower_number_of_models_leave() -> None:
    loaded_models = [loaded_model(name, float(index)) for index, name in enumerate("abc")]
    loaded_models += [loaded_model("pinned", pinned=True), loaded_model("other", type="image")]
    leaving = models_over_limits(loaded_models, 2, {})
    assert leaving == dict.fromkeys("ab", EvictionReason.LIMIT)


def test_the_limit_is_that_of_each_node() -> None:
    loaded_models = [loaded_model(name, float(index), node="gpu2") for index, name in enumerate("abc")]
    loaded_models += [loaded_model("d"), loaded_model("e")]
    assert models_over_limits(loaded_models, 2, {}) == {"a": EvictionReason.LIMIT}


def test_the_npu_of_another_node_is_another_one() -> None:
    elsewhere = loaded_model("a", npu=EXCLUSIVE, node="npu2")
    request = LoadRequest("b", "llm", npu=EXCLUSIVE)
    assert decide_eviction(request, [elsewhere], LoadLimits(1)) == Fits()
    assert decide_eviction(request._replace(node="npu2"), [elsewhere], LoadLimits(2)) == Evict(
        ["a"], [EvictionReason.NPU]
    )


def test_each_evicted_model_has_a_reason() -> None:
    loaded_models = [
        loaded_model("on the npu", type="image", npu=EXCLUSIVE),
        loaded_model("one too many", 1.0, memory=ModelMemory({HOST: 5}, {HOST: 5})),
        loaded_model("large", 2.0, type="embedding", memory=ModelMemory({HOST: 50}, {HOST: 50})),
    ]
    capacities = {HOST: Capacity(HOST, 100, 10)}
    limits = LoadLimits(1, AvailableMemory(capacities, host_reserve=0))
    verdict = decide_eviction(
        LoadRequest("x", "llm", MemoryEstimate({HOST: PlaceNeed(40)}), EXCLUSIVE), loaded_models, limits
    )
    assert verdict == Evict(
        ["on the npu", "one too many", "large"],
        [EvictionReason.NPU, EvictionReason.LIMIT, EvictionReason.MEMORY],
    )


@pytest.mark.parametrize(
    ("recipe", "backend", "npu"),
    [
        ("flm", "npu", SHARED),
        ("ryzenai-llm", "npu", EXCLUSIVE),
        ("oga-hybrid", "hybrid", EXCLUSIVE),
        ("whispercpp", "npu", EXCLUSIVE),
        ("whispercpp", "cpu", ""),
        ("llamacpp", "vulkan", ""),
    ],
)
def test_how_recipes_hold_the_npu(recipe: str, backend: str, npu: str) -> None:
    found = DESCRIPTORS[recipe].backend(backend)
    assert found is not None
    assert found.npu == npu
