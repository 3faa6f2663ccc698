"""What a worker tells a new supervisor, as a pure function of what the worker knows.

A report that the last supervisor may not have read (`EngineDied`, or `LoadFailed` of an engine) is sent again after the
snapshot. So the snapshot describes the moment before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from protocol.ids import RequestKey
from protocol.messages.peers import EngineDied, EngineReady, LoadFailed
from protocol.messages.recovery import AttemptId, AttemptSnapshot, RememberedState, WorkerPhase, WorkerSnapshot
from protocol.models.recipes import ModelSpec
from workers.requests.attempt import Attempt
from workers.worker.process_state import WorkerProcessState

_PHASES: Final = {
    WorkerProcessState.SPARE: WorkerPhase.SPARE,
    WorkerProcessState.LOADING: WorkerPhase.LOADING,
    WorkerProcessState.READY: WorkerPhase.READY,
    WorkerProcessState.ENGINE_LOST: WorkerPhase.ENGINE_LOST,
    WorkerProcessState.LEAVING: WorkerPhase.LEAVING,
}
PINGS_UNTIL_READ: Final = 2
"""A supervisor that has sent this many `Ping`s since a report has read it: it sends one a second, and reads all the time."""

EngineReport = EngineDied | LoadFailed


class SentReport(msgspec.Struct, frozen=True):
    """How the engine ended, as it was reported; ``pings``: how many `Ping`s had come before."""

    message: EngineReport
    pings: int


class ModelRecord(msgspec.Struct):
    """What a worker keeps about the model of its last engine."""

    spec: ModelSpec | None = None
    facts: EngineReady | None = None
    """What was reported of the engine, once it was ready."""
    remembered: RememberedState = RememberedState()
    report: SentReport | None = None
    """How its engine ended, if it did."""

    def started(self, spec: ModelSpec) -> None:
        """Note that an engine was started. What the supervisor decided stays with the model of that name."""
        if self.spec is None or self.spec.name != spec.name:
            self.remembered = RememberedState()
        self.spec, self.facts, self.report = spec, None, None


def unread(report: SentReport | None, pings: int) -> EngineReport | None:
    """Return the report if the supervisor may not have read it. ``pings``: how many have come so far."""
    return report.message if report is not None and pings - report.pings < PINGS_UNTIL_READ else None


def worker_snapshot(
    state: WorkerProcessState,
    model: ModelRecord,
    attempts: Iterable[Attempt],
    ended: Iterable[RequestKey],
    last_use: float,
    pings: int,
) -> WorkerSnapshot:
    """Return the snapshot of a worker. ``ended``: the latest ended attempts, except those with ``returned``."""
    phase = _PHASES[state]
    report = unread(model.report, pings) if phase in (WorkerPhase.SPARE, WorkerPhase.ENGINE_LOST) else None
    if report is not None:
        phase = WorkerPhase.READY if isinstance(report, EngineDied) else WorkerPhase.LOADING
    loaded = phase in (WorkerPhase.READY, WorkerPhase.LEAVING)
    return WorkerSnapshot(
        phase=phase,
        spec=model.spec if phase is not WorkerPhase.SPARE else None,
        facts=model.facts if loaded else None,
        attempts=[
            AttemptSnapshot(*each.key, weight=each.run.weight, began=each.arrived_at, abandoned=each.abandoned)
            for each in attempts
        ],
        ended=[AttemptId(*key) for key in ended],
        last_use=last_use,
        remembered=model.remembered if phase is not WorkerPhase.SPARE else RememberedState(),
    )
