"""Two schedulers with the same events: one looks at the models that are due, the other one at all, and both must decide the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from supervisor.scheduler.effects import Effect
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.scheduler import Scheduler


class TwinScheduler(Scheduler):
    """The scheduler under test, which tells its twin what it is told."""

    def __init__(self, limits: SchedulerLimits, new_worker: Callable[[], str], **more: Any) -> None:
        names: deque[str] = deque()

        def new_name() -> str:
            names.append(new_worker())
            return names[-1]

        super().__init__(limits, new_name, **more)
        self.twin = Scheduler(limits, names.popleft, **more)

    def reconcile(self, now: float) -> None:
        super().reconcile(now)
        self.twin._state.look_at_all()
        self.twin.reconcile(now)

    def effects(self) -> list[Effect]:
        effects = super().effects()
        assert effects == self.twin.effects(), "a look at all models has found something else to do"
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
