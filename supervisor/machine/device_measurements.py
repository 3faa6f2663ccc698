"""Corrects the estimates of models by the memory that their engines hold on devices, as the drivers show it.

Workers measure their engines' memory of the host themselves. They cannot read drivers, because a driver may hang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.messages.engines import EngineReady
from protocol.models.memory import HOST
from supervisor.models.measured_memory import LEAST_CHANGE, MeasuredMemory
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import EngineView


class _Measured:
    """What was measured of one engine."""

    def __init__(self, facts: EngineReady, since: float) -> None:
        self.facts = facts
        """What it reported when it was ready: another engine of the same worker has a report of its own."""
        self.since = since
        """When it was seen to be ready: a reading that began before may show a part of its memory."""
        self.differences: dict[str, int] = {}
        """The largest so far."""


class DeviceMeasurements:
    """Notes what each engine holds beyond its estimate: after its start, and whenever that has grown."""

    def __init__(self, view: SchedulerView, measured: MeasuredMemory, held: Callable[[str], Mapping[str, int]]) -> None:
        """``held`` returns place → bytes that a worker's engine held on devices when they were read last."""
        self._view, self._measured, self._held = view, measured, held
        self._engines: dict[str, _Measured] = {}
        """Worker → what is known of its engine."""

    def devices_read(self, asked_at: float, now: float) -> None:
        """The devices were read. ``asked_at``: when the reading was asked for. Times in seconds of the loop's clock."""
        known, self._engines = self._engines, {}
        for engine in self._view.estimated_engines():
            former = known.get(engine.worker)
            measured = former if former and former.facts is engine.facts else _Measured(engine.facts, now)
            self._engines[engine.worker] = measured
            if measured.since < asked_at:
                self._note(engine, measured.differences)

    def _note(self, engine: EngineView, known: dict[str, int]) -> None:
        held = {place: size for place, size in self._held(engine.worker).items() if place != HOST}
        found = engine.estimate.differences(held, engine.context)
        grown = {
            place: size for place, size in found.items() if place not in known or size >= known[place] + LEAST_CHANGE
        }
        if grown:
            known.update(grown)
            self._measured.note(engine.spec, engine.node, grown)
