"""Runs a function in one of gevent's threads while the calling greenlet waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import gevent
from gevent.monkey import get_original

R = TypeVar("R")
sleep: Final[Callable[[float], object]] = get_original("time", "sleep")
"""Sleeps in such a thread. gevent's own sleep would give the thread a hub, and then keep open the files that the thread had open."""


def in_thread(work: Callable[[], R], pool: Any = None) -> R:
    """Return what ``work`` returns, or raise what it raises. ``pool``: its threads instead of the hub's.

    gevent takes an exception in a thread for an error of the program, and reports it. So nothing is raised there.
    """

    def outcome() -> tuple[R | None, BaseException | None]:
        try:
            return work(), None
        except BaseException as problem:  # noqa: BLE001 - raised below, in the greenlet
            return None, problem

    result, problem = (pool or gevent.get_hub().threadpool).apply(outcome)
    if problem is not None:
        raise problem
    returned: R = result
    return returned
