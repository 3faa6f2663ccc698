"""How far loads are, and for how long they have been under way. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from protocol.messages.engines import LoadProgressed, LoadStage
from protocol.messages.health import LoadInProgress
from supervisor.scheduler.model_states import TO_BE_LOADED, ModelState
from supervisor.scheduler.nodes.suitability import NODE_RETURN_S, awaited_node, suitable_nodes
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
    loading = model.worker.progress if model.worker is not None and model.state is ModelState.LOADING else None
    copying = state.copies.get((model.name, model.search.node))
    if model.state is ModelState.CHECKED:
        stage = LoadStage.WAITING_FOR_MEMORY if model.lacks_memory else LoadStage.WAITING
    else:
        stage = _STAGES.get(model.state, LoadStage.STARTING)
    node = model.worker.node if model.worker is not None else model.search.node
    progress = copying or loading
    if lost := _awaited_node(state, model, now):
        node, progress = lost
    replica = model.number if model.number > 1 else 0
    shown = LoadInProgress(
        model.name,
        stage,
        round(age, 3),
        waiting,
        replica=replica,
        node=node if len(state.nodes) > 1 or lost else "",
    )
    if progress is None:
        return shown
    return structs.replace(shown, stage=progress.stage, done=progress.done, total=progress.total, unit=progress.unit)


def _awaited_node(state: SchedulerState, model: ScheduledModel, now: float) -> tuple[str, LoadProgressed] | None:
    """Return the lost node that a model waits for, and for how long; None if it waits for none."""
    if not state.lost_nodes or model.state is not ModelState.QUEUED or model.worker is not None or model.spec is None:
        return None
    awaited = awaited_node(state, model.spec, now)
    if awaited is None or suitable_nodes(state, model, model.spec, now):
        return None
    name, node = awaited
    return name, LoadProgressed(LoadStage.WAITING_FOR_NODE, int(now - node.at), int(NODE_RETURN_S), "s")
