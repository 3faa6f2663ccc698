"""Two schedulers with the same events: one looks at what is due, the other one at everything, and both must decide the same.

The other one looks at all models and all nodes after each event, and compares all nodes for each load.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from supervisor.scheduler.effects import Effect
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.nodes.node_bounds import BoundFigures
from supervisor.scheduler.scheduler import Scheduler

ANYTHING_FITS = BoundFigures(True, {}, 1, {}, (math.inf, math.inf), [], (math.inf, 0), [], [], math.inf, waits=False)


class NoFigures(dict[str, BoundFigures]):
    """Figures by which no node can be left out of a comparison."""

    def get(self, *_: object) -> BoundFigures:
        return ANYTHING_FITS


class TwinScheduler(Scheduler):
    """The scheduler under test, which tells its twin what it is told."""

    def __init__(self, limits: SchedulerLimits, new_worker: Callable[[], str], **more: Any) -> None:
        names: deque[str] = deque()

        def new_name() -> str:
            names.append(new_worker())
            return names[-1]

        super().__init__(limits, new_name, **more)
        self.twin = Scheduler(limits, names.popleft, **more)
        self.twin._state.figures = NoFigures()

    def reconcile(self, now: float) -> None:
        super().reconcile(now)
        self.twin._state.look_at_all()
        self.twin.reconcile(now)

    def effects(self) -> list[Effect]:
        effects = super().effects()
        assert effects == self.twin.effects(), "a look at everything has found something else to do"
        return effects


def _both(name: str) -> Callable[..., Any]:
    def tell(self: TwinScheduler, *args: Any, **named: Any) -> Any:
        answer = getattr(Scheduler, name)(self, *args, **named)
        assert answer == getattr(self.twin, name)(*args, **named), name
        return answer

    return tell


for _event in vars(Scheduler).keys() - vars(TwinScheduler).keys():
    if not _event.startswith("_"):
        setattr(TwinScheduler, _event, _both(_event))
