"""Tables for the eviction policy: which models are unloaded so that another one can be loaded."""

from __future__ import annotations

import pytest

from protocol.models.recipes import NpuSharing
from supervisor.scheduler.eviction import (
    Blocked,
    Capacity,
    Evict,
    EvictionReason,
    Fits,
    LoadedModel,
    LoadRequest,
    Verdict,
    Wait,
    decide_eviction,
    models_over_limits,
)
from supervisor.scheduler.policy import GroupPolicy
from workers.backends.registry import DESCRIPTORS


def loaded_model(model: str, last_use: float = 0.0, *, busy: bool = False, **more: object) -> LoadedModel:
    return LoadedModel(model, str(more.pop("type", "llm")), last_use, busy, **more)  # type: ignore[arg-type]


def without_reasons(verdict: Verdict) -> Verdict:
    return verdict._replace(reasons=[]) if isinstance(verdict, Evict) else verdict


@pytest.mark.parametrize(
    ("loaded_models", "capacity", "memory", "verdict"),
    [
        ([], Capacity(1), 0, Fits()),
        ([loaded_model("a")], Capacity(2), 0, Fits()),
        ([loaded_model("a", type="embedding")], Capacity(1), 0, Fits()),
        ([loaded_model("a")], Capacity(1), 0, Evict(["a"], [])),
        ([loaded_model("a", 2.0), loaded_model("b", 1.0)], Capacity(2), 0, Evict(["b"], [])),
        ([loaded_model("a", 2.0), loaded_model("b", 1.0, busy=True)], Capacity(2), 0, Evict(["a"], [])),
        ([loaded_model("a", 2.0, busy=True), loaded_model("b", 1.0, busy=True)], Capacity(2), 0, Evict(["b"], [])),
        (
            [loaded_model("a", 2.0, busy=True, draining=True), loaded_model("b", 1.0, busy=True)],
            Capacity(2),
            0,
            Evict(["a"], []),
        ),
        ([loaded_model("a", pinned=True), loaded_model("b", 1.0)], Capacity(2), 0, Evict(["b"], [])),
        (
            [loaded_model("b", pinned=True), loaded_model("a", pinned=True)],
            Capacity(2),
            0,
            Blocked(["a", "b"], EvictionReason.LIMIT),
        ),
        ([loaded_model("a", movable=False)], Capacity(1), 0, Wait()),
        ([loaded_model("a", leaving=True)], Capacity(1), 0, Wait()),
        ([loaded_model("a", pinned=True), loaded_model("b", movable=False)], Capacity(2), 0, Wait()),
        ([loaded_model("a", memory=50)], Capacity(4, 10), 40, Evict(["a"], [])),
        ([loaded_model("a", 1.0, memory=50), loaded_model("b", 2.0, memory=50)], Capacity(4, 10), 40, Evict(["a"], [])),
        ([loaded_model("a", memory=50, busy=True)], Capacity(4, 10), 40, Fits()),
        ([loaded_model("a", memory=50, leaving=True)], Capacity(4, 10), 40, Wait()),
        ([loaded_model("a", memory=50, type="embedding")], Capacity(4, 10), 40, Evict(["a"], [])),
        ([loaded_model("a", memory=50, pinned=True)], Capacity(4, 10), 40, Fits()),
    ],
)
def test_eviction_order(loaded_models: list[LoadedModel], capacity: Capacity, memory: int, verdict: Verdict) -> None:
    assert without_reasons(decide_eviction(LoadRequest("x", "llm", memory), loaded_models, capacity)) == verdict


EXCLUSIVE, SHARED = NpuSharing.EXCLUSIVE, NpuSharing.PER_TYPE


@pytest.mark.parametrize(
    ("npu", "loaded_models", "capacity", "verdict"),
    [
        # models that are not on the NPU, and a request that is not for it
        (EXCLUSIVE, [loaded_model("a", type="image")], Capacity(4), Fits()),
        ("", [loaded_model("a", npu=EXCLUSIVE)], Capacity(4), Fits()),
        # alone means alone, whatever the type
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE)], Capacity(4), Evict(["a"], [])),
        (EXCLUSIVE, [loaded_model("a", type="image", npu=EXCLUSIVE)], Capacity(4), Evict(["a"], [])),
        (
            EXCLUSIVE,
            [loaded_model("a", npu=SHARED), loaded_model("b", type="image", npu=SHARED)],
            Capacity(4),
            Evict(["a", "b"], []),
        ),
        (SHARED, [loaded_model("a", type="image", npu=EXCLUSIVE)], Capacity(4), Evict(["a"], [])),
        # one of each type
        (SHARED, [loaded_model("a", type="image", npu=SHARED)], Capacity(4), Fits()),
        (
            SHARED,
            [loaded_model("a", npu=SHARED), loaded_model("b", type="image", npu=SHARED)],
            Capacity(4),
            Evict(["a"], []),
        ),
        # busy ones too, but none that is pinned or being loaded
        (EXCLUSIVE, [loaded_model("a", busy=True, npu=EXCLUSIVE)], Capacity(4), Evict(["a"], [])),
        (
            EXCLUSIVE,
            [loaded_model("a", npu=EXCLUSIVE, pinned=True), loaded_model("b", type="image", npu=SHARED)],
            Capacity(4),
            Blocked(["a"], EvictionReason.NPU),
        ),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, movable=False)], Capacity(4), Wait()),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, leaving=True)], Capacity(4), Wait()),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, leaving=True, pinned=True)], Capacity(4), Wait()),
        # a model evicted from the NPU also counts towards its type
        (EXCLUSIVE, [loaded_model("a", 2.0, npu=EXCLUSIVE), loaded_model("b", 1.0)], Capacity(2), Evict(["a"], [])),
        (
            EXCLUSIVE,
            [loaded_model("a", 2.0, type="image", npu=EXCLUSIVE), loaded_model("b", 1.0)],
            Capacity(1),
            Evict(["a", "b"], []),
        ),
    ],
)
def test_eviction_order_on_the_npu(
    npu: str, loaded_models: list[LoadedModel], capacity: Capacity, verdict: Verdict
) -> None:
    assert without_reasons(decide_eviction(LoadRequest("x", "llm", 0, npu), loaded_models, capacity)) == verdict


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
    assert without_reasons(decide_eviction(request, loaded_models, Capacity(4, 0, rules))) == verdict


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
    assert models_over_limits(loaded_models, Capacity(4, 0, rules)) == dict.fromkeys(leaving, EvictionReason.GROUP)


def test_models_over_a_lower_number_of_models_leave() -> None:
    loaded_models = [loaded_model(name, float(index)) for index, name in enumerate("abc")]
    loaded_models += [loaded_model("pinned", pinned=True), loaded_model("other", type="image")]
    leaving = models_over_limits(loaded_models, Capacity(2))
    assert leaving == dict.fromkeys("ab", EvictionReason.LIMIT)


def test_each_evicted_model_has_a_reason() -> None:
    loaded_models = [
        loaded_model("on the npu", type="image", npu=EXCLUSIVE),
        loaded_model("one too many", 1.0, memory=5),
        loaded_model("large", 2.0, type="embedding", memory=50),
    ]
    verdict = decide_eviction(LoadRequest("x", "llm", 40, EXCLUSIVE), loaded_models, Capacity(1, 10))
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
