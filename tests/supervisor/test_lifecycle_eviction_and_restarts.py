"""Tables for the supervisor's pure policies: lifecycle, eviction, restarts, peers."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from protocol.messages.admin import Peer
from protocol.models.recipes import NpuSharing
from supervisor.runtime.peers import PeerRegistry
from supervisor.scheduler.backoff import Backoff, BackoffPolicy
from supervisor.scheduler.eviction import (
    Blocked,
    Capacity,
    Evict,
    Fits,
    LoadedModel,
    LoadRequest,
    Verdict,
    Wait,
    decide_eviction,
)
from supervisor.scheduler.worker_lifecycle import (
    TRANSITIONS,
    IllegalTransitionError,
    WorkerEvent,
    WorkerState,
    next_state,
)
from workers.backends.registry import DESCRIPTORS


def test_every_state_is_in_the_table_and_every_living_one_can_end() -> None:
    assert set(TRANSITIONS) == set(WorkerState)
    for state in WorkerState:
        if state is not WorkerState.GONE:
            assert next_state(state, WorkerEvent.GONE) is WorkerState.GONE


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (WorkerState.READY, WorkerEvent.HELLO),
        (WorkerState.GONE, WorkerEvent.GONE),
        (WorkerState.SPARE, WorkerEvent.READY),
    ],
)
def test_a_step_the_table_does_not_know_is_an_error(state: WorkerState, event: WorkerEvent) -> None:
    with pytest.raises(IllegalTransitionError):
        next_state(state, event)


def tenant(model: str, last_use: float = 0.0, *, busy: bool = False, **more: object) -> LoadedModel:
    return LoadedModel(model, str(more.pop("type", "llm")), last_use, busy, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tenants", "budget", "memory", "verdict"),
    [
        ([], Capacity(1), 0, Fits()),
        ([tenant("a")], Capacity(2), 0, Fits()),
        ([tenant("a", type="embedding")], Capacity(1), 0, Fits()),
        ([tenant("a")], Capacity(1), 0, Evict(["a"])),
        ([tenant("a", 2.0), tenant("b", 1.0)], Capacity(2), 0, Evict(["b"])),
        ([tenant("a", 2.0), tenant("b", 1.0, busy=True)], Capacity(2), 0, Evict(["a"])),
        ([tenant("a", 2.0, busy=True), tenant("b", 1.0, busy=True)], Capacity(2), 0, Evict(["b"])),
        ([tenant("a", 2.0, busy=True, draining=True), tenant("b", 1.0, busy=True)], Capacity(2), 0, Evict(["a"])),
        ([tenant("a", pinned=True), tenant("b", 1.0)], Capacity(2), 0, Evict(["b"])),
        ([tenant("b", pinned=True), tenant("a", pinned=True)], Capacity(2), 0, Blocked(["a", "b"])),
        ([tenant("a", movable=False)], Capacity(1), 0, Wait()),
        ([tenant("a", leaving=True)], Capacity(1), 0, Wait()),
        ([tenant("a", pinned=True), tenant("b", movable=False)], Capacity(2), 0, Wait()),
        ([tenant("a", memory=50)], Capacity(4, 10), 40, Evict(["a"])),
        ([tenant("a", 1.0, memory=50), tenant("b", 2.0, memory=50)], Capacity(4, 10), 40, Evict(["a"])),
        ([tenant("a", memory=50, busy=True)], Capacity(4, 10), 40, Fits()),
        ([tenant("a", memory=50, leaving=True)], Capacity(4, 10), 40, Wait()),
        ([tenant("a", memory=50, type="embedding")], Capacity(4, 10), 40, Evict(["a"])),
        ([tenant("a", memory=50, pinned=True)], Capacity(4, 10), 40, Fits()),
    ],
)
def test_eviction_order(tenants: list[LoadedModel], budget: Capacity, memory: int, verdict: Verdict) -> None:
    assert decide_eviction(LoadRequest("x", "llm", memory), tenants, budget) == verdict


EXCLUSIVE, SHARED = NpuSharing.EXCLUSIVE, NpuSharing.PER_TYPE


@pytest.mark.parametrize(
    ("npu", "tenants", "budget", "verdict"),
    [
        # what is not on the NPU, and a wish that is not for it
        (EXCLUSIVE, [tenant("a", type="image")], Capacity(4), Fits()),
        ("", [tenant("a", npu=EXCLUSIVE)], Capacity(4), Fits()),
        # alone means alone, whatever the type
        (EXCLUSIVE, [tenant("a", npu=EXCLUSIVE)], Capacity(4), Evict(["a"])),
        (EXCLUSIVE, [tenant("a", type="image", npu=EXCLUSIVE)], Capacity(4), Evict(["a"])),
        (EXCLUSIVE, [tenant("a", npu=SHARED), tenant("b", type="image", npu=SHARED)], Capacity(4), Evict(["a", "b"])),
        (SHARED, [tenant("a", type="image", npu=EXCLUSIVE)], Capacity(4), Evict(["a"])),
        # one of each type
        (SHARED, [tenant("a", type="image", npu=SHARED)], Capacity(4), Fits()),
        (SHARED, [tenant("a", npu=SHARED), tenant("b", type="image", npu=SHARED)], Capacity(4), Evict(["a"])),
        # busy ones too, but nobody who is pinned or on the way
        (EXCLUSIVE, [tenant("a", busy=True, npu=EXCLUSIVE)], Capacity(4), Evict(["a"])),
        (
            EXCLUSIVE,
            [tenant("a", npu=EXCLUSIVE, pinned=True), tenant("b", type="image", npu=SHARED)],
            Capacity(4),
            Blocked(["a"]),
        ),
        (EXCLUSIVE, [tenant("a", npu=EXCLUSIVE, movable=False)], Capacity(4), Wait()),
        (EXCLUSIVE, [tenant("a", npu=EXCLUSIVE, leaving=True)], Capacity(4), Wait()),
        (EXCLUSIVE, [tenant("a", npu=EXCLUSIVE, leaving=True, pinned=True)], Capacity(4), Wait()),
        # whoever leaves the NPU leaves a place of its type, too
        (EXCLUSIVE, [tenant("a", 2.0, npu=EXCLUSIVE), tenant("b", 1.0)], Capacity(2), Evict(["a"])),
        (EXCLUSIVE, [tenant("a", 2.0, type="image", npu=EXCLUSIVE), tenant("b", 1.0)], Capacity(1), Evict(["a", "b"])),
    ],
)
def test_eviction_order_on_the_npu(npu: str, tenants: list[LoadedModel], budget: Capacity, verdict: Verdict) -> None:
    assert decide_eviction(LoadRequest("x", "llm", 0, npu), tenants, budget) == verdict


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


DEATH = Failure(Code.BACKEND_DIED, "SIGKILL", model="a")


def test_deaths_older_than_the_window_are_forgotten() -> None:
    backoff = Backoff(BackoffPolicy(deaths=3, window=10.0))
    assert all(backoff.died(DEATH, at * 5.0) for at in range(20))


def test_the_breaker_names_its_reason_and_how_long() -> None:
    backoff = Backoff(BackoffPolicy(deaths=1))
    assert backoff.died(DEATH, 0.0)
    assert not backoff.died(DEATH, 1.0)
    refusal = backoff.refusal("a", 11.0)
    assert refusal.code is Code.BREAKER_OPEN
    assert refusal.retry_after == 50.0
    assert "SIGKILL" in refusal.message


def test_a_failed_model_is_suspect_for_a_while_or_until_it_loads() -> None:
    backoff = Backoff(BackoffPolicy())
    backoff.load_failed(DEATH, 0.0)
    assert backoff.suspect(599.0)
    assert not backoff.suspect(600.0)
    backoff.ready()
    assert not backoff.suspect(1.0)


def test_silence_is_noticed_but_not_after_an_absence_of_our_own() -> None:
    peers = PeerRegistry(10.0)
    peers.silent(0.0)
    peers.add(Peer("worker", "w1", 1), 0.0)
    peers.add(Peer("worker", "w2", 2), 0.0)
    for second in range(1, 11):
        peers.message_received("w1", second)
        assert peers.silent(second) == []
    assert [peer.id for peer in peers.silent(10.5)] == ["w2"]
    assert peers.silent(100.0) == []
    assert not peers.message_received("w9", 100.0)
