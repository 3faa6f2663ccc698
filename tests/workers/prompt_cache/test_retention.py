"""Which kept prompt caches are removed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.models.prompt_caches import EntryName
from workers.prompt_cache.retention import StoredEntry, entries_to_remove


def entry(model: str, number: int, size: int, used_at: float) -> StoredEntry:
    return StoredEntry(EntryName(model, "key", number), size, used_at)


A, B, C = entry("a", 1, 10, 3.0), entry("b", 2, 20, 1.0), entry("c", 3, 30, 2.0)


@pytest.mark.parametrize(
    ("limit", "shortfall", "removed"),
    [
        (60, 0, []),
        (59, 0, [B]),
        (40, 0, [B]),
        (39, 0, [B, C]),
        (10, 0, [B, C]),
        (9, 0, [B, C, A]),
        (0, 0, [B, C, A]),
        (60, 1, [B]),
        (60, 21, [B, C]),
        (60, 1000, [B, C, A]),
    ],
)
def test_the_least_recently_used_go_first(limit: int, shortfall: int, removed: list[StoredEntry]) -> None:
    assert entries_to_remove([A, B, C], limit, shortfall) == removed


def test_only_the_newest_of_one_key_stays() -> None:
    old, new = entry("a", 1, 10, 9.0), entry("a", 2, 10, 1.0)
    assert entries_to_remove([old, new], 100) == [old]
    other = StoredEntry(EntryName("a", "another key", 1), 10, 0.0)
    assert entries_to_remove([old, new, other], 100) == [old]


ENTRIES = st.lists(
    st.builds(
        entry,
        st.sampled_from("abc"),
        st.integers(1, 9),
        st.integers(0, 50),
        st.floats(0, 9, allow_nan=False),
    ),
    max_size=9,
    unique_by=lambda each: each.name,
)


@given(ENTRIES, st.integers(0, 200), st.integers(0, 200))
def test_what_stays_fits(entries: list[StoredEntry], limit: int, shortfall: int) -> None:
    removed = entries_to_remove(entries, limit, shortfall)
    assert len(set(removed)) == len(removed)
    staying = [each for each in entries if each not in removed]
    assert len({each.name[:2] for each in staying}) == len(staying)
    assert sum(each.size for each in staying) <= limit
    assert sum(each.size for each in removed) >= shortfall or not staying
    current = {each.name[:2]: each for each in sorted(entries, key=lambda each: each.name.number)}
    for gone in removed:
        if current[gone.name[:2]] is gone:
            assert all(each.used_at >= gone.used_at for each in staying), "one that was used later stays"
