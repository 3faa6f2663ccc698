"""Loads and unloads that the supervisor itself asks of its scheduler: calls like a gateway's, but of no peer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial

from protocol.runtime.loop import Loop
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.scheduler import Scheduler

OnResult = Callable[[object], None]
"""Gets the report of a call, or the failure that refused it."""


class InternalCalls:
    """The calls of peer ``""`` that wait for their result."""

    def __init__(self, loop: Loop, scheduler: Scheduler) -> None:
        """No call waits."""
        self._loop, self._scheduler = loop, scheduler
        self._numbers = itertools.count(1)
        self._waiting: dict[int, OnResult] = {}

    def load(self, target: ModelTarget, on_result: OnResult, *, repeated: bool = False) -> None:
        """Load a model; ``on_result`` is called when it is ready, or cannot be loaded. ``repeated``: after a failure."""
        number = next(self._numbers)
        self._waiting[number] = on_result
        self._scheduler.load_requested("", number, target, self._loop.now(), repeated=repeated)

    def unload(self, models: Iterable[str], then: Callable[[], None]) -> None:
        """Unload models, and call ``then`` once when all are unloaded; at once if there are none that could be."""
        waiting: set[str] = set()

        def gone(model: str, _result: object) -> None:
            waiting.discard(model)
            if not waiting:
                then()

        for model in models:
            number = next(self._numbers)
            if self._scheduler.unload_requested("", number, model):
                waiting.add(model)
                self._waiting[number] = partial(gone, model)
        if not waiting:
            then()

    def end(self, number: int, result: object) -> None:
        """Deliver the result of a call; unknown numbers are ignored."""
        on_result = self._waiting.pop(number, None)
        if on_result is not None:
            on_result(result)
