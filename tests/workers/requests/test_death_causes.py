"""Of which requests an engine may have died."""

from __future__ import annotations

import pytest

from protocol.ids import RequestKey
from workers.requests.death_causes import possible_causes

ONE, TWO, THREE = (RequestKey("g1", number, 1) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("tokens", "causes"),
    [
        ({}, []),
        ({ONE: 0}, [ONE]),
        ({ONE: 7}, [ONE]),
        ({ONE: 7, TWO: 0, THREE: 1}, [TWO]),
        ({ONE: 0, TWO: 0, THREE: 1}, [ONE, TWO]),
        ({ONE: 7, TWO: 1}, [ONE, TWO]),
    ],
)
def test_those_without_a_token_come_first(tokens: dict[RequestKey, int], causes: list[RequestKey]) -> None:
    assert possible_causes(tokens) == causes
