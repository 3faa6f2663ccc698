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


def loaded_model(model: str, last_use: float = 0.0, *, busy: bool = False, **more: object) -> LoadedModel:
    return LoadedModel(model, str(more.pop("type", "llm")), last_use, busy, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loaded_models", "capacity", "memory", "verdict"),
    [
        ([], Capacity(1), 0, Fits()),
        ([loaded_model("a")], Capacity(2), 0, Fits()),
        ([loaded_model("a", type="embedding")], Capacity(1), 0, Fits()),
        ([loaded_model("a")], Capacity(1), 0, Evict(["a"])),
        ([loaded_model("a", 2.0), loaded_model("b", 1.0)], Capacity(2), 0, Evict(["b"])),
        ([loaded_model("a", 2.0), loaded_model("b", 1.0, busy=True)], Capacity(2), 0, Evict(["a"])),
        ([loaded_model("a", 2.0, busy=True), loaded_model("b", 1.0, busy=True)], Capacity(2), 0, Evict(["b"])),
        (
            [loaded_model("a", 2.0, busy=True, draining=True), loaded_model("b", 1.0, busy=True)],
            Capacity(2),
            0,
            Evict(["a"]),
        ),
        ([loaded_model("a", pinned=True), loaded_model("b", 1.0)], Capacity(2), 0, Evict(["b"])),
        ([loaded_model("b", pinned=True), loaded_model("a", pinned=True)], Capacity(2), 0, Blocked(["a", "b"])),
        ([loaded_model("a", movable=False)], Capacity(1), 0, Wait()),
        ([loaded_model("a", leaving=True)], Capacity(1), 0, Wait()),
        ([loaded_model("a", pinned=True), loaded_model("b", movable=False)], Capacity(2), 0, Wait()),
        ([loaded_model("a", memory=50)], Capacity(4, 10), 40, Evict(["a"])),
        ([loaded_model("a", 1.0, memory=50), loaded_model("b", 2.0, memory=50)], Capacity(4, 10), 40, Evict(["a"])),
        ([loaded_model("a", memory=50, busy=True)], Capacity(4, 10), 40, Fits()),
        ([loaded_model("a", memory=50, leaving=True)], Capacity(4, 10), 40, Wait()),
        ([loaded_model("a", memory=50, type="embedding")], Capacity(4, 10), 40, Evict(["a"])),
        ([loaded_model("a", memory=50, pinned=True)], Capacity(4, 10), 40, Fits()),
    ],
)
def test_eviction_order(loaded_models: list[LoadedModel], capacity: Capacity, memory: int, verdict: Verdict) -> None:
    assert decide_eviction(LoadRequest("x", "llm", memory), loaded_models, capacity) == verdict


EXCLUSIVE, SHARED = NpuSharing.EXCLUSIVE, NpuSharing.PER_TYPE


@pytest.mark.parametrize(
    ("npu", "loaded_models", "capacity", "verdict"),
    [
        # models that are not on the NPU, and a request that is not for it
        (EXCLUSIVE, [loaded_model("a", type="image")], Capacity(4), Fits()),
        ("", [loaded_model("a", npu=EXCLUSIVE)], Capacity(4), Fits()),
        # alone means alone, whatever the type
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE)], Capacity(4), Evict(["a"])),
        (EXCLUSIVE, [loaded_model("a", type="image", npu=EXCLUSIVE)], Capacity(4), Evict(["a"])),
        (
            EXCLUSIVE,
            [loaded_model("a", npu=SHARED), loaded_model("b", type="image", npu=SHARED)],
            Capacity(4),
            Evict(["a", "b"]),
        ),
        (SHARED, [loaded_model("a", type="image", npu=EXCLUSIVE)], Capacity(4), Evict(["a"])),
        # one of each type
        (SHARED, [loaded_model("a", type="image", npu=SHARED)], Capacity(4), Fits()),
        (
            SHARED,
            [loaded_model("a", npu=SHARED), loaded_model("b", type="image", npu=SHARED)],
            Capacity(4),
            Evict(["a"]),
        ),
        # busy ones too, but none that is pinned or being loaded
        (EXCLUSIVE, [loaded_model("a", busy=True, npu=EXCLUSIVE)], Capacity(4), Evict(["a"])),
        (
            EXCLUSIVE,
            [loaded_model("a", npu=EXCLUSIVE, pinned=True), loaded_model("b", type="image", npu=SHARED)],
            Capacity(4),
            Blocked(["a"]),
        ),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, movable=False)], Capacity(4), Wait()),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, leaving=True)], Capacity(4), Wait()),
        (EXCLUSIVE, [loaded_model("a", npu=EXCLUSIVE, leaving=True, pinned=True)], Capacity(4), Wait()),
        # a model evicted from the NPU counts among its type, too
        (EXCLUSIVE, [loaded_model("a", 2.0, npu=EXCLUSIVE), loaded_model("b", 1.0)], Capacity(2), Evict(["a"])),
        (
            EXCLUSIVE,
            [loaded_model("a", 2.0, type="image", npu=EXCLUSIVE), loaded_model("b", 1.0)],
            Capacity(1),
            Evict(["a", "b"]),
        ),
    ],
)
def test_eviction_order_on_the_npu(
    npu: str, loaded_models: list[LoadedModel], capacity: Capacity, verdict: Verdict
) -> None:
    assert decide_eviction(LoadRequest("x", "llm", 0, npu), loaded_models, capacity) == verdict


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
