"""The state of a model whose worker an earlier supervisor had started, and what calls had asked for it. Pure.

Beside :mod:`supervisor.scheduler.model_changes`, this alone changes the states of models.
"""

from __future__ import annotations

from typing import Final

from protocol.messages.peers import EngineReady
from protocol.messages.recovery import RememberedState, WorkerPhase
from supervisor.scheduler import model_changes
from supervisor.scheduler.model_states import ModelEvent
from supervisor.scheduler.policy import PolicyOverrides
from supervisor.scheduler.scheduled_model import ScheduledModel, ScheduledWorker
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_states import WorkerEvent

_TO_LOADING: Final = (
    (ModelEvent.QUEUE, WorkerEvent.HELLO),
    (ModelEvent.CHECK, WorkerEvent.CHECK),
    (ModelEvent.CHECKED, WorkerEvent.CHECKED),
    (ModelEvent.LOAD, WorkerEvent.LOAD),
)
"""What has happened to a model and to its worker until its engine was started."""


def take_over(
    state: SchedulerState,
    model: ScheduledModel,
    process: ScheduledWorker,
    phase: WorkerPhase,
    facts: EngineReady | None,
) -> None:
    """Give a model the worker that an earlier supervisor gave it: both go the way to what the worker does now.

    A worker that has lost its engine is ready at first; the loss is an event of its own.
    """
    for of_model, of_process in _TO_LOADING:
        model.transition(of_model)
        process.transition(of_process)
    model.process, process.model = process, model
    process.facts = facts
    if phase is WorkerPhase.LEAVING:
        model.transition(ModelEvent.UNLOAD)
        state.expect_end(process)
    elif phase is WorkerPhase.READY and facts is not None:
        model_changes.become_ready(state, model, process, facts)
    elif phase is WorkerPhase.ENGINE_LOST:
        model.transition(ModelEvent.READY)
        process.transition(WorkerEvent.READY)
        model.keep_loaded = True


def restore_remembered(model: ScheduledModel, process: ScheduledWorker, remembered: RememberedState) -> None:
    """Let what calls had asked for a loaded model count again."""
    model.overrides = process.remembered = PolicyOverrides(remembered.pinned, remembered.ttl)
