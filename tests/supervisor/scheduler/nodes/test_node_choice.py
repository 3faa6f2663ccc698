"""On which of several nodes a model is loaded: the order of offers, and needs that are carried over to other devices."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from protocol.models.memory import HOST, Capacity, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD
from supervisor.scheduler.eviction import LoadedModel, LoadLimits, LoadRequest
from supervisor.scheduler.memory.fitting import AvailableMemory, ModelMemory
from supervisor.scheduler.nodes.node_choice import (
    Effort,
    NodeView,
    Offer,
    best,
    carried_over,
    estimate_of_size,
    nearest,
    offer_of,
)
from supervisor.scheduler.policy import GroupPolicy

GPU, OTHER_GPU = "0000:01:00.0", "0000:02:00.0"


def engine(name: str, node: str, bytes_: int, last_use: float = 0.0, **more: object) -> LoadedModel:
    """Return a loaded model that is idle and holds this much of the host's memory."""
    memory = ModelMemory({HOST: bytes_}, {HOST: bytes_})
    return LoadedModel(name, "llm", last_use, **{"busy": False, "memory": memory, "node": node, **more})


def node(name: str, total: int, *loaded: LoadedModel, models: int = 9, **more: object) -> NodeView:
    """Return a node with this memory, of which its models hold theirs."""
    used = sum(each.memory.used[HOST] for each in loaded if each.node == name)
    capacities = {HOST: Capacity(HOST, total, total - used)}
    return NodeView(name, loaded, LoadLimits(models, AvailableMemory(capacities, 0, 0)), **more)


def unread(name: str) -> NodeView:
    """Return a node whose memory was never read."""
    return NodeView(name, [], LoadLimits(9), memory_read=False)


class Case(NamedTuple):
    """What a model that needs 50 bytes finds, and where it is loaded."""

    about: str
    nodes: list[NodeView]
    chosen: str
    effort: Effort = Effort.NONE
    siblings: frozenset[str] = frozenset()


CASES = [
    Case("the fullest node where it fits", [node("a", 100), node("b", 60), node("c", 40)], "b"),
    Case("where it fits, before where its files are", [node("a", 40), node("b", 90, has_files=False)], "b"),
    Case("of those where it fits, the one with its files", [node("a", 60, has_files=False), node("b", 90)], "b"),
    Case(
        "a node without an eviction, however full others would be",
        [node("a", 60, engine("x", "a", 20)), node("b", 500)],
        "b",
    ),
    Case(
        "the model that was used longest ago leaves",
        [node("a", 60, engine("x", "a", 60, 9.0)), node("b", 60, engine("y", "b", 60, 5.0))],
        "b",
        Effort.IDLE_MODELS,
    ),
    Case(
        "an idle model leaves before a busy one, although it was used later",
        [node("a", 60, engine("x", "a", 60, 1.0, busy=True)), node("b", 60, engine("y", "b", 60, 5.0))],
        "b",
        Effort.IDLE_MODELS,
    ),
    Case(
        "an idle model leaves before something is waited for",
        [node("a", 60, engine("x", "a", 60, leaving=True)), node("b", 60, engine("y", "b", 60, 5.0))],
        "b",
        Effort.IDLE_MODELS,
    ),
    Case(
        "a busy model leaves before a pinned one could",
        [node("a", 60, engine("x", "a", 60, pinned=True)), node("b", 60, engine("y", "b", 60, busy=True))],
        "b",
        Effort.BUSY_MODELS,
    ),
    Case(
        "a node that is never large enough comes last",
        [node("a", 40), node("b", 60, engine("y", "b", 60, pinned=True))],
        "b",
        Effort.PINNED_MODELS,
    ),
    Case(
        "limits are per node",
        [node("a", 90, engine("x", "a", 1), models=1), node("b", 99, models=1)],
        "b",
    ),
    Case(
        "the NPU is per node",
        [node("a", 90, engine("x", "a", 1, npu="exclusive")), node("b", 99)],
        "b",
    ),
    Case(
        "a node whose memory is unknown comes after one where it fits",
        [unread("a"), node("b", 99)],
        "b",
    ),
    Case("the head, if nothing else speaks for a node", [node("a", 99), node(HEAD, 99)], HEAD),
    Case(
        "engines of one model are spread",
        [node("a", 90, engine("m#2", "a", 1)), node("b", 99)],
        "b",
        siblings=frozenset({"m#2"}),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[case.about for case in CASES])
def test_the_best_offer(case: Case) -> None:
    request = LoadRequest("m", "llm", MemoryEstimate({HOST: PlaceNeed(50)}), npu="exclusive")
    for nodes in (case.nodes, case.nodes[::-1]):
        found = best(offer_of(view, request, siblings=case.siblings) for view in nodes)
        assert found is not None
        assert (found.node, found.effort) == (case.chosen, case.effort)


def test_a_load_that_may_evict_nothing_goes_where_it_fits() -> None:
    request = LoadRequest("m", "llm", MemoryEstimate({HOST: PlaceNeed(50)}))
    view = node("a", 60, engine("x", "a", 60))
    assert offer_of(view, request, may_displace=False).effort is Effort.PINNED_MODELS


def test_a_chosen_node_is_only_left_for_one_where_the_load_takes_less() -> None:
    here, equal = Offer("a", None, Effort.IDLE_MODELS, left=9), Offer("b", None, Effort.IDLE_MODELS)  # type: ignore[arg-type]
    fits, files = equal._replace(effort=Effort.NONE), here._replace(has_files=False)
    assert best([here, equal], "a") == here
    assert best([here, equal], "gone") == equal
    assert best([here, fits], "a") == fits
    assert best([files, equal], "a") == equal
    assert best([]) is None


def test_a_refusal_has_the_figures_of_the_node_that_lacks_least() -> None:
    request = LoadRequest("m", "llm", MemoryEstimate({HOST: PlaceNeed(50)}))
    views = [node("a", 20), node("b", 45), node("c", 30)]
    assert nearest([offer_of(view, request) for view in views]).node == "b"
    pinned = node("d", 60, engine("x", "d", 60, pinned=True))
    assert nearest([offer_of(view, request) for view in [*views, pinned]]).node == "d"


def test_groups_count_on_all_nodes() -> None:
    request = LoadRequest("m", "llm", groups=frozenset({"g"}))
    other = engine("x", "a", 1, groups=frozenset({"g"}))
    view = node("b", 99, other)
    limits = view.limits._replace(groups={"g": GroupPolicy(swap=True)})
    offer = offer_of(view._replace(limits=limits), request)
    assert ([each.model for each in offer.victims], offer.effort) == (["x"], Effort.IDLE_MODELS)


def test_an_eviction_for_a_group_on_another_node_frees_no_memory_here() -> None:
    request = LoadRequest("m", "llm", MemoryEstimate({HOST: PlaceNeed(50)}), groups=frozenset({"g"}))
    elsewhere = engine("x", "a", 60, groups=frozenset({"g"}))
    here = engine("y", "b", 60)
    view = node("b", 60, elsewhere, here)
    limits = view.limits._replace(groups={"g": GroupPolicy(swap=True)})
    offer = offer_of(view._replace(limits=limits), request)
    assert sorted(each.model for each in offer.victims) == ["x", "y"]


def capacities(**free: int) -> dict[str, Capacity]:
    places = {"host": HOST, "gpu": GPU, "other": OTHER_GPU}
    return {places[name]: Capacity(places[name], 100, bytes_) for name, bytes_ in free.items()}


@pytest.mark.parametrize(
    ("needs", "on_devices", "there", "expected"),
    [
        ({"": 30}, True, capacities(host=90, gpu=50), {GPU: 30}),
        ({"": 30}, False, capacities(host=90, gpu=50), {HOST: 30}),
        ({"": 30}, True, capacities(host=90), {HOST: 30}),
        ({"": 30}, True, capacities(host=90, gpu=90, other=40), {OTHER_GPU: 30}),
        ({"": 30}, True, capacities(host=90, gpu=20, other=10), {OTHER_GPU: 30}),
        ({"": 120}, True, capacities(host=90, gpu=90, other=90), {GPU: 60, OTHER_GPU: 60}),
        ({HOST: 10, "0000:09:00.0": 30}, True, capacities(host=90, gpu=50), {HOST: 10, GPU: 30}),
        ({HOST: 10, "0000:09:00.0": 30}, True, capacities(host=90), {HOST: 40}),
        ({HOST: 40}, True, capacities(host=90, gpu=50), {GPU: 40}),
        ({}, True, capacities(host=90, gpu=50), {}),
        ({"": 30}, True, {}, {HOST: 30}),
    ],
)
def test_needs_are_carried_over_to_the_devices_of_a_node(
    needs: dict[str, int], on_devices: bool, there: dict[str, Capacity], expected: dict[str, int]
) -> None:
    estimate = MemoryEstimate({place: PlaceNeed(fixed) for place, fixed in needs.items()})
    assert carried_over(estimate, there, on_devices=on_devices).need() == expected


def test_what_a_context_needs_is_carried_over_with_it() -> None:
    estimate = MemoryEstimate({"0000:09:00.0": PlaceNeed(30, 0.5, 20, 4)}, context=8, slots=2)
    there = capacities(gpu=90)
    assert carried_over(estimate, there, on_devices=True).places == {GPU: PlaceNeed(30, 0.5, 20, 4)}


def test_without_a_size_nothing_is_known_of_a_model() -> None:
    assert estimate_of_size(0) == MemoryEstimate()
