"""How far loads are, and for how long they have been under way. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from protocol.messages.health import LoadInProgress
from protocol.messages.peers import LoadStage
from supervisor.scheduler.model_states import TO_BE_LOADED, ModelState
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState

_STAGES: Final = {ModelState.QUEUED: LoadStage.QUEUED, ModelState.CHECKING: LoadStage.CHECKING}


def note_beginning(model: ScheduledModel, now: float) -> None:
    """Note since when a model is being loaded."""
    if model.state not in TO_BE_LOADED and model.state is not ModelState.LOADING:
        model.load_began = None
    elif model.load_began is None:
        model.load_began = now


def loads_in_progress(state: SchedulerState, now: float) -> list[LoadInProgress]:
    """Return all loads that have begun and not ended, the oldest first."""
    loading = [model for model in state.models.values() if model.load_began is not None]
    return [_shown(state, model, now) for model in sorted(loading, key=lambda model: model.load_began or 0.0)]


def _shown(state: SchedulerState, model: ScheduledModel, now: float) -> LoadInProgress:
    age = now - model.load_began if model.load_began is not None else 0.0
    waiting = len(model.queue) + len(model.loaders) if model.is_lead else 0
    copying = state.copies.get((model.name, model.search.node))
    if model.state is ModelState.CHECKED:
        stage = LoadStage.WAITING_FOR_MEMORY if model.lacks_memory else LoadStage.WAITING
    else:
        stage = _STAGES.get(model.state, LoadStage.STARTING)
    replica = model.number if model.number > 1 else 0
    node = model.worker.node if model.worker is not None else model.search.node
    shown = LoadInProgress(
        model.name,
        stage,
        round(age, 3),
        waiting,
        replica=replica,
        node=node if len(state.nodes) > 1 else "",
    )
    loading = model.worker.progress if model.worker is not None and model.state is ModelState.LOADING else None
    progress = copying or loading
    if progress is None:
        return shown
    return structs.replace(shown, stage=progress.stage, done=progress.done, total=progress.total, unit=progress.unit)
