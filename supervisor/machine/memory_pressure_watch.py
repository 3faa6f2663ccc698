"""Looks at the memory of the machine and of the control groups above the server, and tells the scheduler when one is short of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from protocol.config.settings import Settings
from protocol.models.memory import HOST, Capacity
from protocol.models.nodes import HEAD
from protocol.runtime import logs
from protocol.runtime.control_groups import find_cgroups
from protocol.runtime.loop import Loop
from supervisor.machine.host_memory import process_root
from supervisor.machine.memory_pressure import MemoryPressure, PressureJudge, PressureReading, is_near, read_pressure
from supervisor.runtime.decisions import Decisions
from supervisor.scheduler.scheduler import Scheduler

INTERVAL_S: Final = 1.0
NEAR_INTERVAL_S: Final = 0.1
"""While less than a quarter of a place is left: an engine that loads takes hundreds of megabytes a second."""

log = logs.get_logger()


class MemoryPressureWatch:
    """Looks at regular intervals, if a model is loaded."""

    def __init__(self, loop: Loop, settings: Settings, scheduler: Scheduler, decisions: Decisions) -> None:
        """Begin to look."""
        self._loop, self._scheduler, self._decisions = loop, scheduler, decisions
        self._machine = Path(settings.machine_dir)
        self._groups = find_cgroups(process_root(self._machine))
        self._judge = PressureJudge(settings.memory_reserve)
        self._pressure: MemoryPressure | None = None
        """That of the last look."""
        self._look_later(INTERVAL_S)

    def _look_later(self, seconds: float) -> None:
        self._loop.call_at_next(seconds, self._look)

    def _look(self) -> None:
        if not self._scheduler.view.has_loaded_models:
            self._pressure = None
            self._look_later(INTERVAL_S)
            return
        readings = read_pressure(self._machine, self._groups)
        self._look_later(NEAR_INTERVAL_S if is_near(readings) else INTERVAL_S)
        before, self._pressure = self._pressure, self._judge.judge(readings, self._loop.now())
        if self._pressure is not None:
            reading = self._pressure.reading
            figures = {**_figures(reading), "stalled": round(self._pressure.stalled, 3)}
            if before is None:
                log.warning("memory is nearly used up", **figures)
            host = Capacity(HOST, reading.limit, reading.free, reading.group)
            self._scheduler.memory_short(HEAD, host, figures, self._loop.now())
            self._decisions.reconcile()
        elif before is not None:
            now = next((each for each in readings if each.group == before.reading.group), before.reading)
            log.info("memory is no longer short", **_figures(now))


def _figures(reading: PressureReading) -> dict[str, object]:
    """Return what the log says of a place, sizes in bytes."""
    place = reading.group or "the machine"
    return {"place": place, "limit": reading.limit, "free": reading.free, "headroom": reading.headroom}
