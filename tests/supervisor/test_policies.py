"""Tables for the supervisor's pure policies: lifecycle, eviction, restarts, peers."""

from __future__ import annotations

import pytest

from protocol.admin import Peer
from protocol.failures import Code, Failure
from protocol.recipes import Npu
from supervisor.eviction import Blocked, Budget, Evict, Fits, Tenant, Verdict, Wait, Wish, decide
from supervisor.lifecycle import TABLE, IllegalStepError, State, Step, step
from supervisor.peers import Peers
from supervisor.restarts import Policy, Record
from workers.backends import DESCRIPTORS


def test_every_state_is_in_the_table_and_every_living_one_can_end() -> None:
    assert set(TABLE) == set(State)
    for state in State:
        if state is not State.GONE:
            assert step(state, Step.GONE) is State.GONE


@pytest.mark.parametrize(
    ("state", "event"), [(State.READY, Step.HELLO), (State.GONE, Step.GONE), (State.SPARE, Step.READY)]
)
def test_a_step_the_table_does_not_know_is_an_error(state: State, event: Step) -> None:
    with pytest.raises(IllegalStepError):
        step(state, event)


def tenant(model: str, last_use: float = 0.0, *, busy: bool = False, **more: object) -> Tenant:
    return Tenant(model, str(more.pop("type", "llm")), last_use, busy, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tenants", "budget", "memory", "verdict"),
    [
        ([], Budget(1), 0, Fits()),
        ([tenant("a")], Budget(2), 0, Fits()),
        ([tenant("a", type="embedding")], Budget(1), 0, Fits()),
        ([tenant("a")], Budget(1), 0, Evict(["a"])),
        ([tenant("a", 2.0), tenant("b", 1.0)], Budget(2), 0, Evict(["b"])),
        ([tenant("a", 2.0), tenant("b", 1.0, busy=True)], Budget(2), 0, Evict(["a"])),
        ([tenant("a", 2.0, busy=True), tenant("b", 1.0, busy=True)], Budget(2), 0, Evict(["b"])),
        ([tenant("a", 2.0, busy=True, draining=True), tenant("b", 1.0, busy=True)], Budget(2), 0, Evict(["a"])),
        ([tenant("a", pinned=True), tenant("b", 1.0)], Budget(2), 0, Evict(["b"])),
        ([tenant("b", pinned=True), tenant("a", pinned=True)], Budget(2), 0, Blocked(["a", "b"])),
        ([tenant("a", movable=False)], Budget(1), 0, Wait()),
        ([tenant("a", leaving=True)], Budget(1), 0, Wait()),
        ([tenant("a", pinned=True), tenant("b", movable=False)], Budget(2), 0, Wait()),
        ([tenant("a", memory=50)], Budget(4, 10), 40, Evict(["a"])),
        ([tenant("a", 1.0, memory=50), tenant("b", 2.0, memory=50)], Budget(4, 10), 40, Evict(["a"])),
        ([tenant("a", memory=50, busy=True)], Budget(4, 10), 40, Fits()),
        ([tenant("a", memory=50, leaving=True)], Budget(4, 10), 40, Wait()),
        ([tenant("a", memory=50, type="embedding")], Budget(4, 10), 40, Evict(["a"])),
        ([tenant("a", memory=50, pinned=True)], Budget(4, 10), 40, Fits()),
    ],
)
def test_who_must_leave(tenants: list[Tenant], budget: Budget, memory: int, verdict: Verdict) -> None:
    assert decide(Wish("x", "llm", memory), tenants, budget) == verdict


ALONE, SHARED = Npu.ALONE, Npu.PER_TYPE


@pytest.mark.parametrize(
    ("npu", "tenants", "budget", "verdict"),
    [
        # what is not on the NPU, and a wish that is not for it
        (ALONE, [tenant("a", type="image")], Budget(4), Fits()),
        ("", [tenant("a", npu=ALONE)], Budget(4), Fits()),
        # alone means alone, whatever the type
        (ALONE, [tenant("a", npu=ALONE)], Budget(4), Evict(["a"])),
        (ALONE, [tenant("a", type="image", npu=ALONE)], Budget(4), Evict(["a"])),
        (ALONE, [tenant("a", npu=SHARED), tenant("b", type="image", npu=SHARED)], Budget(4), Evict(["a", "b"])),
        (SHARED, [tenant("a", type="image", npu=ALONE)], Budget(4), Evict(["a"])),
        # one of each type
        (SHARED, [tenant("a", type="image", npu=SHARED)], Budget(4), Fits()),
        (SHARED, [tenant("a", npu=SHARED), tenant("b", type="image", npu=SHARED)], Budget(4), Evict(["a"])),
        # busy ones too, but nobody who is pinned or on the way
        (ALONE, [tenant("a", busy=True, npu=ALONE)], Budget(4), Evict(["a"])),
        (
            ALONE,
            [tenant("a", npu=ALONE, pinned=True), tenant("b", type="image", npu=SHARED)],
            Budget(4),
            Blocked(["a"]),
        ),
        (ALONE, [tenant("a", npu=ALONE, movable=False)], Budget(4), Wait()),
        (ALONE, [tenant("a", npu=ALONE, leaving=True)], Budget(4), Wait()),
        (ALONE, [tenant("a", npu=ALONE, leaving=True, pinned=True)], Budget(4), Wait()),
        # whoever leaves the NPU leaves a place of its type, too
        (ALONE, [tenant("a", 2.0, npu=ALONE), tenant("b", 1.0)], Budget(2), Evict(["a"])),
        (ALONE, [tenant("a", 2.0, type="image", npu=ALONE), tenant("b", 1.0)], Budget(1), Evict(["a", "b"])),
    ],
)
def test_who_must_leave_the_npu(npu: str, tenants: list[Tenant], budget: Budget, verdict: Verdict) -> None:
    assert decide(Wish("x", "llm", 0, npu), tenants, budget) == verdict


@pytest.mark.parametrize(
    ("recipe", "backend", "npu"),
    [
        ("flm", "npu", SHARED),
        ("ryzenai-llm", "npu", ALONE),
        ("oga-hybrid", "hybrid", ALONE),
        ("whispercpp", "npu", ALONE),
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
    record = Record(Policy(deaths=3, window=10.0))
    assert all(record.died(DEATH, at * 5.0) for at in range(20))


def test_the_breaker_names_its_reason_and_how_long() -> None:
    record = Record(Policy(deaths=1))
    assert record.died(DEATH, 0.0)
    assert not record.died(DEATH, 1.0)
    refusal = record.refusal("a", 11.0)
    assert refusal.code is Code.BREAKER_OPEN
    assert refusal.retry_after == 50.0
    assert "SIGKILL" in refusal.message


def test_a_failed_model_is_suspect_for_a_while_or_until_it_loads() -> None:
    record = Record(Policy())
    record.load_failed(DEATH, 0.0)
    assert record.suspect(599.0)
    assert not record.suspect(600.0)
    record.ready()
    assert not record.suspect(1.0)


def test_silence_is_noticed_but_not_after_an_absence_of_our_own() -> None:
    peers = Peers(10.0)
    peers.silent(0.0)
    peers.add(Peer("worker", "w1", 1), 0.0)
    peers.add(Peer("worker", "w2", 2), 0.0)
    for second in range(1, 11):
        peers.heard("w1", second)
        assert peers.silent(second) == []
    assert [peer.id for peer in peers.silent(10.5)] == ["w2"]
    assert peers.silent(100.0) == []
    assert not peers.heard("w9", 100.0)
