"""The state of a model whose worker an earlier supervisor started, and what calls had asked for it. Pure.

Besides :mod:`supervisor.scheduler.model_changes`, only this file changes the states of models.
"""

from __future__ import annotations

from typing import Final

from protocol.messages.engines import EngineReady
from protocol.messages.models import PolicyOverrides
from protocol.worker_states import WorkerEvent, WorkerState
from supervisor.scheduler import model_changes
from supervisor.scheduler.model_states import ModelEvent
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState

_TO_LOADING: Final = (
    (ModelEvent.QUEUE, WorkerEvent.HELLO),
    (ModelEvent.CHECK, WorkerEvent.CHECK),
    (ModelEvent.CHECKED, WorkerEvent.CHECKED),
    (ModelEvent.LOAD, WorkerEvent.LOAD),
)
"""The events of a model and of its worker until its engine was started."""


def take_over(
    state: SchedulerState,
    model: ScheduledModel,
    worker: ScheduledWorker,
    reported: WorkerState,
    facts: EngineReady | None,
) -> None:
    """Give a model its worker back from an earlier supervisor: both go through the states to the worker's present one.

    A worker that has lost its engine is ready at first; the loss is a separate event.
    """
    for of_model, of_worker in _TO_LOADING:
        model.transition(of_model)
        worker.transition(of_worker)
    model.worker, worker.model = worker, model
    worker.facts = facts
    if reported is WorkerState.LEAVING:
        model.transition(ModelEvent.UNLOAD)
        state.expect_end(worker)
    elif reported is WorkerState.READY and facts is not None:
        model_changes.become_ready(state, model, worker, facts)
    elif reported is WorkerState.ENGINE_LOST:
        model.transition(ModelEvent.READY)
        worker.transition(WorkerEvent.READY)
        model.keep_loaded = True


def restore_remembered(model: ScheduledModel, worker: ScheduledWorker, remembered: PolicyOverrides) -> None:
    """Apply again what calls had asked for a loaded model."""
    worker.remembered = remembered
    if remembered != PolicyOverrides():  # of several engines, one may be told later than another
        model.replica_set.overrides = remembered
