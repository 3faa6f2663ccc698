"""A patch makes one object of another one, and says no more than what differs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.overview.merge_patch import apply_patch, merge_patch
from tests.support.merge_patch import patched

VALUES = st.recursive(
    st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"b": 2}, {"a": None}),
        ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}}, {"a": {"b": 3}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}, {"a": {"b": None}}),
        ({"a": {"b": 1}}, {"a": {}}, {"a": {"b": None}}),
        ({"a": {"b": {"c": 1, "d": 1}}}, {"a": {"b": {"c": 1, "d": 2}}}, {"a": {"b": {"d": 2}}}),
        ({"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 3]}),
        ({"a": [1]}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": 1}}, {"a": 1}, {"a": 1}),
    ],
)
def test_only_what_differs_is_in_the_patch(
    before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]
) -> None:
    assert merge_patch(before, after) == patch
    assert patched(before, patch) == apply_patch(before, patch) == after


@given(OBJECTS, OBJECTS)
def test_the_patch_makes_one_of_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    patch = merge_patch(before, after)
    assert patched(before, patch) == apply_patch(before, patch) == after


@given(OBJECTS)
def test_nothing_differs_from_itself(value: dict[str, Any]) -> None:
    assert merge_patch(value, value) == {}
