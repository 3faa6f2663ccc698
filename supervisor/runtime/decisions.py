"""Lets the scheduler decide after an event, and has its decisions carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.internal_errors import InternalErrors
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.effect_executor import EffectExecutor
from supervisor.scheduler.scheduler import Scheduler

RECONCILE_INTERVAL_S: Final = 0.25
"""The scheduler looks at everything this often even if nothing happens: time alone makes a request or a model due."""

log = logs.get_logger()


class Decisions:
    """When the scheduler decides. An exception in it is counted, and the next event tries again."""

    def __init__(
        self, loop: Loop, scheduler: Scheduler, models: ModelRegistry, executor: EffectExecutor, errors: InternalErrors
    ) -> None:
        """Nothing is decided before an event."""
        self._loop, self._scheduler, self._models = loop, scheduler, models
        self._executor, self._errors = executor, errors
        self.suspended = False
        """Whether nothing is decided: another supervisor is being taken over from, or takes over."""

    def start(self) -> None:
        """Decide from now on, even if nothing happens; the first decision starts a spare worker."""
        self._loop.every(RECONCILE_INTERVAL_S, self.reconcile)
        self.reconcile()

    def reconcile(self) -> None:
        """Let the scheduler do what the present state allows, and carry out its effects."""
        while self._models.problems:
            log.warning("model files", problem=self._models.problems.pop(0))
        self._decide(self._scheduler.reconcile)

    def reconcile_unless_settled(self) -> None:
        """Do the same after a request, its end or cancel: these change nothing else unless something waits or moves."""
        self._decide(self._scheduler.reconcile_unless_settled)

    def carry_out(self) -> None:
        """Carry out what the scheduler has decided since the last time."""
        self._executor.execute(self._scheduler.effects())

    def _decide(self, decide: Callable[[float], None]) -> None:
        """Let the scheduler decide. Effects from before an exception are also carried out: peers wait for them."""
        if self.suspended:
            return
        try:
            decide(self._loop.now())
        except Exception as problem:  # noqa: BLE001 - logged and counted; the next event tries again
            self._errors.failure_of(problem, where="scheduler")
        self.carry_out()
