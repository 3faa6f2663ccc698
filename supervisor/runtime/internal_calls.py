"""Calls that the supervisor makes to its own scheduler: they have a number and a result like a gateway's, but no peer."""

from __future__ import annotations

import itertools
from collections.abc import Callable

OnResult = Callable[[object], None]
"""Gets the report of a call, or the failure that refused it."""


class InternalCalls:
    """The calls of peer ``""`` that wait for their result."""

    def __init__(self) -> None:
        """No call waits."""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, OnResult] = {}

    def begin(self, on_result: OnResult) -> int:
        """Return the number of a new call."""
        number = next(self._numbers)
        self._waiting[number] = on_result
        return number

    def end(self, number: int, result: object) -> None:
        """Deliver the result of a call; unknown numbers are ignored."""
        on_result = self._waiting.pop(number, None)
        if on_result is not None:
            on_result(result)
