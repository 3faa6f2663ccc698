"""Asking a server again and again, until something has happened there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from gateway.cli.exit_codes import FAILED, CommandError

T = TypeVar("T")
INTERVAL_S: Final = 0.5
_FAILED_POLLS: Final = 10
"""How often in a row the server's answer may fail: the gateway that was asked may die, or be replaced by an upgrade."""


def answers(ask: Callable[[], T], timeout: float | None) -> Iterator[T | None]:
    """Yield an answer every half second, and None where it failed, until ``timeout`` seconds are over (None: for ever).

    Raises the ``CommandError`` of the last one if too many fail in a row, or if asking again would not help.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    failed = 0
    while (left := INTERVAL_S if deadline is None else min(INTERVAL_S, deadline - time.monotonic())) > 0:
        time.sleep(left)
        try:
            answer = ask()
        except CommandError as problem:
            failed += 1
            if problem.exit_code != FAILED or failed >= _FAILED_POLLS:
                raise
            yield None
        else:
            failed = 0
            yield answer
