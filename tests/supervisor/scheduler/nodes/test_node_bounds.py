"""A bound is never worse than the offer itself, whatever is loaded on a node and whatever part of what waits there comes before."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from protocol.models.memory import HOST, Capacity, MemoryEstimate, PlaceNeed
from supervisor.scheduler.eviction import EvictionReason, LoadedModel, LoadLimits, LoadRequest
from supervisor.scheduler.memory.fitting import AvailableMemory, ModelMemory, least_need
from supervisor.scheduler.nodes.node_bounds import Demand, bound_of, figures_of
from supervisor.scheduler.nodes.node_choice import Effort, NodeView, carried_over, offer_of
from supervisor.scheduler.nodes.reservations import EvictionClaim, LoadReservation

GPUS = ["gpu0", "gpu1"]
BYTES = st.integers(0, 12)
AMOUNTS = st.fixed_dictionaries({HOST: BYTES, "gpu0": BYTES, "gpu1": BYTES})
TYPES = st.sampled_from(["llm", "llm", "embedding"])


@st.composite
def loaded_models(draw: st.DrawFn) -> list[LoadedModel]:
    return [
        LoadedModel(
            f"m{number}",
            draw(TYPES),
            last_use=draw(st.sampled_from([float("-inf"), 1.0, 2.0, 3.0, 4.0])),
            busy=draw(st.booleans()),
            pinned=draw(st.sampled_from([False, False, True])),
            movable=draw(st.sampled_from([True, True, False])),
            leaving=draw(st.sampled_from([False, False, True])),
            memory=ModelMemory(draw(AMOUNTS), draw(AMOUNTS)),
        )
        for number in range(draw(st.integers(0, 5)))
    ]


@st.composite
def reserved(draw: st.DrawFn, loaded: list[LoadedModel]) -> list[LoadReservation]:
    """What waits on the node; each model leaves for one of them at most."""
    leavers = [each.model for each in loaded if each.movable and not each.pinned and not each.leaving]
    of = {key: draw(st.integers(-1, 1)) for key in leavers}
    claim = EvictionClaim(1, sure=True, reason=EvictionReason.MEMORY)
    return [
        LoadReservation(
            None,  # type: ignore[arg-type] - no figure depends on it
            "head",
            (number, 0, 1),
            LoadedModel(f"w{number}", draw(TYPES), 9.0, True, movable=False, memory=ModelMemory(draw(AMOUNTS))),
            {key: claim for key, which in of.items() if which == number},
        )
        for number in range(2)
    ]


def view_of(loaded: list[LoadedModel], before: list[LoadReservation], limits: LoadLimits) -> NodeView:
    claimed = {key for each in before for key in each.claims}
    now = [each._replace(leaving=each.leaving or each.model in claimed) for each in loaded]
    return NodeView("head", [*now, *(each.ahead for each in before if each.ahead)], limits)


@settings(max_examples=200)
@given(data=st.data(), loaded=loaded_models(), gpus=st.integers(0, 2), most=st.integers(1, 6))
def test_a_bound_is_never_worse_than_the_offer(
    data: st.DataObject, loaded: list[LoadedModel], gpus: int, most: int
) -> None:
    places = [HOST, *GPUS[:gpus]]
    totals = {place: data.draw(st.integers(0, 40)) for place in places}
    capacities = {place: Capacity(place, total, data.draw(st.integers(0, total))) for place, total in totals.items()}
    memory = AvailableMemory(capacities, 0, 0, {place: data.draw(st.integers(0, 3)) for place in places})
    limits = LoadLimits(most, memory)
    waiting = data.draw(reserved(loaded))
    before = waiting[: data.draw(st.integers(0, 2))]
    estimate = MemoryEstimate({place: PlaceNeed(data.draw(BYTES)) for place in (HOST, "elsewhere")})
    on_devices = data.draw(st.booleans())
    carried = carried_over(estimate, capacities, on_devices=on_devices)
    request = LoadRequest("new", data.draw(TYPES), carried)
    offer = offer_of(view_of(loaded, before, limits), request, may_displace=data.draw(st.booleans()))
    figures = figures_of(loaded, waiting, limits, read=True)
    need = least_need(carried)
    on_host = need.get(HOST, 0)
    # Shares of several devices are rounded, as the caller knows.
    demand = Demand(request.type, on_host, sum(need.values()) - on_host, rounding=gpus)
    for limit in Effort:
        bound = bound_of(figures, demand, below=limit)
        assert bound <= offer.order


def test_a_node_without_free_memory_is_left_out() -> None:
    limits = LoadLimits(9, AvailableMemory({HOST: Capacity(HOST, 10, 2)}, 0, 0))
    idle = LoadedModel("a", "llm", 5.0, busy=False, memory=ModelMemory({HOST: 8}, {HOST: 8}))
    figures = figures_of([idle], [], limits, read=True)
    assert bound_of(figures, Demand("llm", 2)) == (Effort.NONE, False, (0, 0.0, 0), 0, 0)
    assert bound_of(figures, Demand("llm", 3)) == (Effort.IDLE_MODELS, False, (0, 5.0, 1))
    assert bound_of(figures, Demand("llm", 3), below=Effort.IDLE_MODELS) == (Effort.IDLE_MODELS,)
    assert bound_of(figures, Demand("llm", 11)) == (Effort.PINNED_MODELS,)
    busy = figures_of([idle._replace(busy=True)], [], limits, read=True)
    assert bound_of(busy, Demand("llm", 3)) == (Effort.BUSY_MODELS, False, (1, 5.0, 1))


def test_too_many_models_cost_an_idle_one_even_if_its_memory_does_not_suffice() -> None:
    """One is being loaded, and nothing says yet when it may leave."""
    limits = LoadLimits(2, AvailableMemory({HOST: Capacity(HOST, 10, 0)}, 0, 0))
    idle = LoadedModel("a", "llm", 5.0, busy=False, memory=ModelMemory({HOST: 1}, {HOST: 1}))
    loading = LoadedModel("b", "llm", 6.0, busy=False, movable=False, memory=ModelMemory({HOST: 9}, {HOST: 9}))
    offer = offer_of(
        NodeView("head", [idle, loading], limits), LoadRequest("new", "llm", MemoryEstimate({HOST: PlaceNeed(5)}))
    )
    assert offer.effort is Effort.IDLE_MODELS
    bound = bound_of(figures_of([idle, loading], [], limits, read=True), Demand("llm", 5))
    assert bound == (Effort.IDLE_MODELS, False, (0, 5.0, 1)) <= offer.order
