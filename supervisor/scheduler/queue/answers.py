"""Answers to what waits for a model: successful calls, and refused requests and calls. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.models import Loaded, PolicyOverrides
from supervisor.scheduler import known_models
from supervisor.scheduler.effects import AnswerCall
from supervisor.scheduler.queue.work_items import PendingCall
from supervisor.scheduler.scheduled_model import ScheduledModel, satisfies, with_model
from supervisor.scheduler.state import SchedulerState


def answer_loads(state: SchedulerState, model: ScheduledModel) -> None:
    """Answer the loads of a ready model. Loads with other options wait until it is loaded again with them."""
    waiting: list[PendingCall] = []
    for caller in model.loaders:
        if model.pending_spec is None or satisfies(caller.spec, model.spec):
            answer_load(state, model, caller)
        else:
            waiting.append(caller)
    model.loaders = waiting


def answer_load(state: SchedulerState, model: ScheduledModel, caller: PendingCall) -> None:
    """Tell a load's caller that the model is ready."""
    if model.spec is not None:
        facts = model.worker.facts if model.worker is not None else None
        context = facts.context if facts is not None else 0
        report = Loaded(model.name, model.spec.checkpoint, model.spec.recipe, context)
        answer_when_remembered(state, model, caller, report)


def answer_when_remembered(state: SchedulerState, model: ScheduledModel, caller: PendingCall, report: object) -> None:
    """Answer a call once the worker of its model remembers what calls have asked for the model.

    The answer promises that a pin or an idle time applies. A supervisor that takes over learns these only from the
    worker.
    """
    loaded = (each for each in model.replica_set.replicas if each.loaded)
    model = model if model.loaded else next(loaded, model)
    known_models.let_worker_remember(state, model)
    asked = model.worker is not None and model.overrides != PolicyOverrides()
    worker_id = model.worker.id if model.worker is not None and asked else ""
    state.emit(AnswerCall(caller.peer, caller.number, report, after=worker_id))


def answer_unloads(state: SchedulerState, model: ScheduledModel) -> None:
    """Tell the callers of unloads that the model's worker is gone: of several, the last one."""
    ended, model.unloaders = model.unloaders, []
    for caller in ended:
        if not caller.abandoned and not any(caller in each.unloaders for each in model.replica_set.replicas):
            state.emit(AnswerCall(caller.peer, caller.number, [model.name]))


def server_ends(state: SchedulerState) -> Failure:
    """Return why a request is refused while the server ends."""
    return Failure(Code.DRAINING, "The server is shutting down", retry_after=state.limits.grace)


def refuse_at_end(state: SchedulerState, model: ScheduledModel) -> None:
    """Refuse what waits for a model while the server ends, except later pieces of long lists if its engine still serves."""
    serves = any(each.serves_to_the_end for each in model.replica_set.replicas)
    refuse_waiting(state, model, server_ends(state), later_pieces=not serves)


def refuse_unserved(state: SchedulerState, model: ScheduledModel, failure: Failure) -> None:
    """Refuse all that waits for a model because of one of its engines, unless another one serves it or is about to."""
    if not model.replica_set.has_another(model):
        refuse_waiting(state, model, failure)


def refuse_waiting(
    state: SchedulerState, model: ScheduledModel, failure: Failure, *, later_pieces: bool = True
) -> None:
    """Refuse all requests and loads that wait for a model; ``later_pieces``: also those of lists that have begun."""
    failure = with_model(model, failure)
    for waiting in model.queue:
        if later_pieces or waiting.request.earlier is None:
            model.queue.remove(waiting.key)
            state.refuse(waiting.key, failure)
    refuse_loads(state, model, failure)
    if model.provisional and model.unused() and not model.is_needed_as_first:
        known_models.forget(state, model)


def refuse_loads(state: SchedulerState, model: ScheduledModel, failure: Failure) -> None:
    """Refuse all loads of a model. Its waiting requests go on waiting."""
    refuse_calls(state, model.loaders, with_model(model, failure))
    if model.loaders:
        model.loaders.clear()
        model.replica_set.changed()
    known_models.drop_requested_options(model)


def refuse_calls(state: SchedulerState, callers: Sequence[PendingCall], failure: Failure) -> None:
    """Refuse some calls."""
    for caller in callers:
        state.refuse(RequestKey(caller.peer, caller.number, 0), failure)
