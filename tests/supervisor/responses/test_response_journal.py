"""A store of responses that is rebuilt from its journal is the same store."""

from __future__ import annotations

import os
from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import given

from protocol.failures import LemonbusError
from protocol.messages.responses import StoredResponse, StoredTurn
from supervisor.responses import journaled_store
from supervisor.responses.journaled_store import JournaledStore
from supervisor.responses.response_store import Owner, ResponseKey, StoreLimits

LIMITS = StoreLimits(6, 100_000, 1000.0)
IDS = [f"r{number}" for number in range(12)]


def contents(store: JournaledStore) -> dict[str, StoredResponse]:
    found = {}
    for response_id in IDS:
        with suppress(LemonbusError):
            found[response_id] = store.get(ResponseKey(response_id, "k"), 0.0, whole=True)
    return found


def reopened(descriptor: int) -> JournaledStore:
    """What the next supervisor has."""
    store = JournaledStore(LIMITS)
    store.use_journal(os.dup(descriptor), lambda _: None)
    return store


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "run", "finish", "cancel", "delete", "abandon", "gateway"]),
        st.sampled_from(IDS),
        st.sampled_from(["", *IDS]),
    ),
    max_size=40,
)


@given(steps=STEPS, spare=st.sampled_from([0, 1_000_000]))
def test_the_next_supervisor_has_the_same_responses(steps: list[tuple[str, str, str]], spare: int) -> None:
    held: list[int] = []
    store = JournaledStore(LIMITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journaled_store, "_SPARE_BYTES", spare)  # without any it is rewritten again and again
        store.use_journal(-1, held.append)
        for moment, (what, response_id, other) in enumerate(steps):
            key, number = ResponseKey(response_id, "k"), IDS.index(response_id) + 1
            with suppress(LemonbusError):
                if what in ("add", "run"):
                    owner = Owner(f"g{number % 2}", number) if what == "run" else None
                    turn = StoredTurn(b"in" + response_id.encode(), b"out")
                    store.add(key, turn, other if other != response_id else "", float(moment), owner)
                elif what == "finish":
                    store.finish(response_id, b"end of " + response_id.encode(), float(moment))
                elif what == "cancel":
                    store.cancel(key, float(moment))
                elif what == "delete":
                    store.delete(key, float(moment))
                elif what == "abandon":
                    store.call_abandoned(Owner(f"g{number % 2}", number))
                else:
                    store.gateway_gone(f"g{number % 2}")
        again = reopened(held[-1])
        before = contents(store)
        after = contents(again)
        assert {name: after.get(name) for name in before} == before
        assert again.owners() == store.owners()
        assert len(again) <= LIMITS.entries


def test_a_record_that_was_not_written_to_its_end_is_forgotten() -> None:
    held: list[int] = []
    store = JournaledStore(LIMITS)
    store.use_journal(-1, held.append)
    for response_id in ("r0", "r1"):
        store.add(ResponseKey(response_id, "k"), StoredTurn(b"in", b"out"), "", 1.0)
    size = os.fstat(held[0]).st_size
    os.ftruncate(held[0], size - 3)
    again = reopened(held[0])
    assert list(contents(again)) == ["r0"]
    again.add(ResponseKey("r2", "k"), StoredTurn(b"in", b"out"), "r0", 2.0)
    assert list(contents(reopened(held[0]))) == ["r0", "r2"]
