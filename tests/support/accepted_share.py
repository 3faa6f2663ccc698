"""Properties of functions that accept some inputs and refuse others: a test whose inputs are nearly all refused proves nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy


def accepted_share(
    least: float, *, examples: int = 100, **strategies: SearchStrategy[Any]
) -> Callable[[Callable[..., bool]], Callable[[], None]]:
    """Make a test of a property that returns whether its input was accepted.

    The test fails where the property does, and where less than the share ``least`` of the inputs is accepted, or all
    of them are.
    """

    def decorate(holds: Callable[..., bool]) -> Callable[[], None]:
        def test() -> None:
            outcomes: list[bool] = []

            @settings(max_examples=max(examples, settings().max_examples))
            @given(**strategies)
            def run(**inputs: Any) -> None:
                outcomes.append(holds(**inputs))

            run()
            share = outcomes.count(True) / len(outcomes)
            assert least <= share < 1, f"{share:.0%} of {len(outcomes)} inputs were accepted, not {least:.0%} to 99%"

        # Not functools.wraps: pytest would look for fixtures with the names of the property's parameters.
        functools.update_wrapper(test, holds)
        del test.__wrapped__  # type: ignore[attr-defined]
        return pytest.mark.hypothesis(test)

    return decorate
