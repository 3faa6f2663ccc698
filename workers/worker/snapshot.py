"""What a worker tells a new supervisor, as a pure function of what the worker knows.

A report that the last supervisor may not have read (`EngineDied`, or `LoadFailed` of an engine) is sent again after the
snapshot. So the snapshot describes the moment before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import structs

from protocol.messages.engines import EngineDied, EngineReady, LoadFailed, LoadProgressed, StartEngine
from protocol.messages.models import PolicyOverrides
from protocol.messages.recovery import AttemptSnapshot, WorkerSnapshot
from protocol.messages.work import AttemptEnded
from protocol.worker_states import WorkerState
from workers.requests.attempt import Attempt

PINGS_UNTIL_READ: Final = 2
"""A supervisor that has sent this many `Ping`s since a report has read it: it sends one a second, and reads all the time."""

EngineReport = EngineDied | LoadFailed


class SentReport(msgspec.Struct, frozen=True):
    """How the engine ended, as it was reported; ``pings``: how many `Ping`s had come before."""

    message: EngineReport
    pings: int


class ModelRecord(msgspec.Struct):
    """What a worker keeps about the model of its last engine."""

    order: StartEngine | None = None
    """What its engine was started with."""
    facts: EngineReady | None = None
    """What was reported of the engine, once it was ready."""
    remembered: PolicyOverrides = PolicyOverrides()
    report: SentReport | None = None
    """How its engine ended, if it did."""
    load_began: float = 0.0
    """By this process's clock."""
    progress: LoadProgressed | None = None
    """What was reported of the load last."""
    ready_at: float = 0.0
    """When its engine became ready, by this process's clock."""

    def started(self, order: StartEngine, now: float) -> None:
        """Note that an engine was started. What the supervisor decided stays with the model of that name."""
        if self.order is None or self.order.spec.name != order.spec.name:
            self.remembered = PolicyOverrides()
        self.order, self.load_began = order, now - order.age
        self.facts = self.report = self.progress = None


def unread(report: SentReport | None, pings: int) -> EngineReport | None:
    """Return the report if the supervisor may not have read it. ``pings``: how many have come so far."""
    return report.message if report is not None and pings - report.pings < PINGS_UNTIL_READ else None


def worker_snapshot(
    state: WorkerState,
    model: ModelRecord,
    attempts: Iterable[Attempt],
    ended: Iterable[AttemptEnded],
    last_use: float,
    pings: int,
    now: float,
) -> WorkerSnapshot:
    """Return the snapshot of a worker. ``ended``: the latest ends, except those with ``returned``.

    ``last_use``: by the clock that shows ``now``; 0: never.
    """
    report = unread(model.report, pings) if state in (WorkerState.SPARE, WorkerState.ENGINE_LOST) else None
    if report is not None:
        state = WorkerState.READY if isinstance(report, EngineDied) else WorkerState.LOADING
    loaded = state in (WorkerState.READY, WorkerState.LEAVING)
    snapshot = WorkerSnapshot(
        state=state,
        facts=model.facts if loaded else None,
        ready_age=now - model.ready_at if loaded and model.facts is not None else None,
        attempts=[
            AttemptSnapshot(*each.key, weight=each.run.weight, age=now - each.arrived_at, abandoned=each.abandoned)
            for each in attempts
        ],
        ended=list(ended),
        last_use=now - last_use if last_use else None,
        remembered=model.remembered if state is not WorkerState.SPARE else PolicyOverrides(),
        load_age=now - model.load_began if state is WorkerState.LOADING else 0.0,
        progress=model.progress if state is WorkerState.LOADING else None,
    )
    order = model.order
    if order is None or state is WorkerState.SPARE:
        return snapshot
    return structs.replace(
        snapshot,
        spec=order.spec,
        context=order.context,
        need=order.need,
        paths=order.paths,
        replica=order.replica,
        backend=order.backend,
        device=order.device,
    )
