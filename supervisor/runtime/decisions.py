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
        self,
        loop: Loop,
        scheduler: Scheduler,
        models: ModelRegistry,
        read_memory: Callable[[float], None],
        executor: EffectExecutor,
        errors: InternalErrors,
    ) -> None:
        """Nothing is decided before an event. ``read_memory`` is called before each decision, with the time."""
        self._loop, self._scheduler, self._models, self._read_memory = loop, scheduler, models, read_memory
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
            log.warning("a list of models cannot be read as it is", reason=self._models.problems.pop(0))
        self._decide()

    def reconcile_unless_settled(self) -> None:
        """Do the same after a request, its end or cancel: these change nothing else unless something waits or moves."""
        if not self._scheduler.view.settled:
            self._decide()
        elif not self.suspended:
            self.carry_out()

    def carry_out(self) -> None:
        """Carry out what the scheduler has decided since the last time."""
        self._executor.execute(self._scheduler.effects())

    def _decide(self) -> None:
        """Let the scheduler decide. Effects from before an exception are also carried out: peers wait for them."""
        if self.suspended:
            return
        try:
            self._read_memory(self._loop.now())
            self._scheduler.reconcile(self._loop.now())
        except Exception as problem:  # noqa: BLE001 - logged and counted; the next event tries again
            self._errors.failure_of(problem, where="scheduler")
        self.carry_out()
