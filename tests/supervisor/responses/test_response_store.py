"""The stored responses: histories, bounds, and who may read them."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.failures import Code, LemonbusError
from protocol.messages.responses import ResponseState, StoredTurn
from supervisor.responses.conversation import TURN_OVERHEAD
from supervisor.responses.response_store import Owner, ResponseKey, ResponseStore, StoreLimits

LIMITS = StoreLimits(entries=4, bytes=1_000_000, ttl=100.0)
GATEWAY = Owner("g1", 7)


def key(name: str, api_key: str = "") -> ResponseKey:
    return ResponseKey(name, api_key)


def turn(name: str, size: int = 0) -> StoredTurn:
    return StoredTurn(f"in {name}".encode(), f"out {name}".encode().ljust(size))


def stored(*names: str, limits: StoreLimits = LIMITS) -> ResponseStore:
    """Return a store with responses that continue each other, stored a second apart."""
    store = ResponseStore(limits)
    for at, name in enumerate(names):
        store.add(key(name), turn(name), names[at - 1] if at else "", float(at))
    return store


def inputs(store: ResponseStore, name: str) -> list[bytes]:
    return [each.input for each in store.get(key(name), 0.0, whole=True).turns]


def refused(code: Code, call: Any, *args: Any, **named: Any) -> None:
    with pytest.raises(LemonbusError) as problem:
        call(*args, **named)
    assert problem.value.failure.code is code


def test_a_conversation_is_read_oldest_first() -> None:
    store = stored("a", "b", "c")
    assert inputs(store, "c") == [b"in a", b"in b", b"in c"]
    assert store.get(key("c"), 0.0).turns == [turn("c")]
    store.add(key("fork"), turn("fork"), "a", 5.0)
    assert inputs(store, "fork") == [b"in a", b"in fork"]


def test_what_is_deleted_stays_in_later_conversations_and_in_memory_no_longer_than_these() -> None:
    store = stored("a", "b")
    assert store.delete(key("a"), 0.0) is None
    refused(Code.NOT_FOUND, store.get, key("a"), 0.0)
    refused(Code.NOT_FOUND, store.delete, key("a"), 0.0)
    refused(Code.NOT_FOUND, store.add, key("x"), turn("x"), "a", 0.0)
    assert inputs(store, "b") == [b"in a", b"in b"]
    store.delete(key("b"), 0.0)
    assert (len(store), store.size) == (0, 0)


def test_the_responses_of_the_key_that_has_most_give_way() -> None:
    store = ResponseStore(LIMITS)
    store.add(key("mine", "few"), turn("mine"), "", 0.0)
    for at in range(10):
        store.add(key(f"r{at}", "many"), turn(f"r{at}"), "", 1.0 + at)
    assert store.get(key("mine", "few"), 20.0).turns == [turn("mine")]
    refused(Code.NOT_FOUND, store.get, key("r6", "many"), 20.0)
    assert store.get(key("r7", "many"), 20.0).turns == [turn("r7")]


def test_bytes_of_turns_that_only_later_ones_refer_to_count_for_their_key() -> None:
    store = ResponseStore(StoreLimits(entries=100, bytes=100_000, ttl=100.0))
    store.add(key("mine", "few"), turn("mine", 9_000), "", 0.0)
    with contextlib.suppress(LemonbusError):  # the conversation alone is too large in the end
        for at in range(30):
            store.add(key(f"r{at}", "many"), turn(f"r{at}", 4_000), f"r{at - 1}" if at else "", 1.0 + at)
            if at:
                store.delete(key(f"r{at - 1}", "many"), 1.0 + at)
    assert store.get(key("mine", "few"), 20.0).turns == [turn("mine", 9_000)]
    assert store.size <= 100_000


def test_the_oldest_give_way() -> None:
    store = stored("a", "b", "c", "d", "e")
    refused(Code.NOT_FOUND, store.get, key("a"), 0.0)
    assert inputs(store, "e")[0] == b"in a"
    small = StoreLimits(entries=100, bytes=100_000, ttl=100.0)
    store = ResponseStore(small)
    for number in range(30):
        store.add(key(str(number)), turn("x", small.entry_bytes - TURN_OVERHEAD - 10), "", 0.0)
        assert store.size <= small.bytes
    assert 0 < len(store) < 30


def test_the_time_to_live() -> None:
    store = stored("a", "b")
    assert store.get(key("a"), 100.0)
    refused(Code.NOT_FOUND, store.get, key("a"), 100.1)
    assert inputs(store, "b") == [b"in a", b"in b"]
    store.expire(200.0)
    assert (len(store), store.size) == (0, 0)


def test_what_is_too_large_is_refused_and_evicts_nothing() -> None:
    store = stored("a")
    refused(Code.TOO_LARGE, store.add, key("big"), turn("big", LIMITS.entry_bytes), "", 0.0)
    assert len(store) == 1
    for name, previous in (("b", "a"), ("c", "b"), ("d", "c")):
        store.add(key(name), turn(name, LIMITS.entry_bytes // 3), previous, 0.0)
    refused(Code.TOO_LARGE, store.get, key("d"), 0.0, whole=True)
    assert store.get(key("d"), 0.0).turns, "alone it is small enough"


def test_another_api_key_sees_nothing() -> None:
    store = ResponseStore(LIMITS)
    store.add(key("a", "alice"), turn("a"), "", 0.0)
    for other in ("", "bob"):
        for call in (store.get, store.cancel, store.delete):
            refused(Code.NOT_FOUND, call, key("a", other), 0.0)
        refused(Code.NOT_FOUND, store.add, key("b", other), turn("b"), "a", 0.0)
    assert store.get(key("a", "alice"), 0.0)
    refused(Code.CONFLICT, store.add, key("a", "bob"), turn("a"), "", 0.0)


def running(name: str = "r") -> ResponseStore:
    store = ResponseStore(LIMITS)
    store.add(key(name), turn(name), "", 0.0, GATEWAY)
    return store


def state(store: ResponseStore, name: str = "r") -> ResponseState:
    return store.get(key(name), 0.0).state


def test_a_response_that_runs_ends_once() -> None:
    store = running()
    assert state(store) is ResponseState.RUNNING
    store.finish("r", b"final", 1.0)
    assert (state(store), store.get(key("r"), 0.0).turns[0].response) == (ResponseState.ENDED, b"final")
    store.finish("r", b"again", 2.0)
    assert store.cancel(key("r"), 2.0) is None
    store.gateway_gone("g1")
    assert (state(store), store.get(key("r"), 0.0).turns[0].response) == (ResponseState.ENDED, b"final")
    assert store.size == TURN_OVERHEAD + len(b"in r") + len(b"final")


def test_a_response_that_runs_is_cancelled_deleted_or_lost() -> None:
    store = running()
    assert store.cancel(key("r"), 1.0) == GATEWAY
    store.finish("r", b"final", 2.0)
    assert (state(store), store.cancel(key("r"), 3.0)) == (ResponseState.CANCELLED, None)

    store = running()
    assert store.delete(key("r"), 1.0) == GATEWAY
    store.finish("r", b"final", 2.0)
    assert (len(store), store.size) == (0, 0)

    store = running()
    store.gateway_gone("g2")
    store.call_abandoned(Owner("g1", 8))
    assert state(store) is ResponseState.RUNNING
    store.call_abandoned(GATEWAY)
    assert state(store) is ResponseState.LOST

    store = running()
    store.gateway_gone("g1")
    assert state(store) is ResponseState.LOST


def test_what_runs_is_not_evicted_and_does_not_expire() -> None:
    store = running("r0")
    for number in range(1, LIMITS.entries):
        store.add(key(f"r{number}"), turn("x"), "", 0.0, Owner("g1", number))
    refused(Code.OVERLOADED, store.add, key("one more"), turn("x"), "", 0.0)
    assert len(store) == LIMITS.entries
    store.expire(1000.0)
    assert len(store) == LIMITS.entries
    store.finish("r0", b"final", 1000.0)
    store.expire(1001.0)
    assert len(store) == LIMITS.entries - 1


def test_an_end_that_is_too_large_is_lost() -> None:
    store = running()
    store.finish("r", bytes(LIMITS.entry_bytes), 0.0)
    assert state(store) is ResponseState.LOST
    limits = StoreLimits(entries=100, bytes=80_000, ttl=100.0)
    store = ResponseStore(limits)
    for number in range(9):
        store.add(key(str(number)), turn("x", 7_500), "", 0.0, Owner("g1", number))
    size = store.size
    store.finish("0", bytes(7_600), 0.0)
    assert (state(store, "0"), store.size) == (ResponseState.ENDED, size + 100)
    for number in range(1, 9):
        store.finish(str(number), bytes(8_900), 0.0)
        assert store.size <= limits.bytes


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "run", "finish", "cancel", "delete", "gone", "wait"]),
        st.integers(0, 19),
        st.integers(0, 39),
        st.sampled_from([0, 1000, 3900, 4000]),
    ),
    max_size=80,
)


@given(STEPS)
def test_the_bounds_hold_in_any_history(steps: list[tuple[str, int, int, int]]) -> None:
    limits = StoreLimits(entries=12, bytes=40_000, ttl=10.0)
    store, now = ResponseStore(limits), 0.0
    for action, one, other, size in steps:
        with contextlib.suppress(LemonbusError):
            if action in ("add", "run"):
                owner = Owner("g1", one) if action == "run" else None
                store.add(key(str(one)), turn("x", size), str(other) if other < 20 else "", now, owner)
            elif action == "finish":
                store.finish(str(one), bytes(size), now)
            elif action == "cancel":
                store.cancel(key(str(one)), now)
            elif action == "delete":
                store.delete(key(str(one)), now)
            elif action == "gone":
                store.gateway_gone("g1")
            else:
                now += one
        assert len(store) <= limits.entries
        assert 0 <= store.size <= limits.bytes
    store.gateway_gone("g1")
    store.expire(now + 1000.0)
    assert (len(store), store.size) == (0, 0), "what no response refers to is in memory no longer"
