"""The depth of JSON that is not decoded, whatever its texts have in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.bodies import nesting
from gateway.http.bodies.nesting import MAX_NESTING, is_too_deep

TEXTS = st.text(st.sampled_from('"\\[]{}/bnu\n\u20ac'), max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def depth(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max((depth(each) for each in (value.values() if isinstance(value, dict) else value)), default=0)


@given(VALUES, st.booleans(), st.integers(0, 6))
def test_it_is_the_depth_of_the_lists_and_objects(value: Any, ascii_only: bool, limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "MAX_NESTING", limit)
        assert is_too_deep(json.dumps(value, ensure_ascii=ascii_only).encode()) == (depth(value) > limit)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"[":', b'["\\"[",['])
@pytest.mark.parametrize("closed", [True, False])
def test_the_limit(opening: bytes, closed: bool) -> None:
    each = opening.replace(b'"[', b"").count(b"[") + opening.replace(b'"[', b"").count(b"{")
    for times, too_deep in ((MAX_NESTING // each, False), (MAX_NESTING // each + 1, True), (100_000, True)):
        closing = (b"]" if opening.endswith(b"[") else b"}") * times if closed else b""
        assert is_too_deep(opening * times + closing) == too_deep
