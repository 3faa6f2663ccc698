"""Which models the scheduler knows, with their replicas, and what calls have asked for: options, a pin, an idle time. Pure.

What becomes of them is in :mod:`model_changes`.
"""

from __future__ import annotations

from protocol.messages.models import PolicyOverrides
from protocol.messages.recovery import RememberState
from protocol.models.recipes import ModelSpec
from supervisor.scheduler.due_queue import NEVER_DUE
from supervisor.scheduler.effects import ForgetModel, SendMessage
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduled_model import NEVER, ScheduledModel, needs_new_engine
from supervisor.scheduler.state import SchedulerState


def find_or_add(state: SchedulerState, target: ModelTarget, *, load: bool = False) -> ScheduledModel:
    """Return the requested model, added if necessary.

    Its spec is only replaced while it has no worker, and by a request only while nothing else waits: a request does not
    undo the options of a load.
    """
    known = state.replica_sets.get(target.name)
    if known is None:
        policy = state.policies.of(target.name)
        known = ReplicaSet(target.name, target.type, policy, state.index, provisional=target.provisional)
        state.replica_sets[target.name] = known
        add_replica(state, known, 1).last_use = state.past_use.pop(target.name, NEVER)
    known.changed()
    model = known.lead
    if model.worker is None and not model.demanded:
        known.overrides = PolicyOverrides()
    if model.worker is None and target.spec is not None and (load or model.spec is None or not model.demanded):
        if not model.demanded or target.fallback is not None:
            model.rollback_spec = target.fallback
        model.spec = target.spec
    return model


def find_or_add_replica(state: SchedulerState, target: ModelTarget, number: int) -> ScheduledModel:
    """Return an engine of a model by its number, added if necessary, for a worker that has it already."""
    known = find_or_add(state, target).replica_set
    replica = known.replica(number) or add_replica(state, known, number)
    if replica.worker is None:
        replica.spec = target.spec
    return replica


def add_replica(state: SchedulerState, of: ReplicaSet, number: int) -> ScheduledModel:
    """Add an engine to a model. Nothing is loaded yet."""
    replica = ScheduledModel(of, number, state.limits.restarts)
    of.replicas.append(replica)
    of.replicas.sort(key=lambda each: each.number)
    state.models[replica.key] = replica
    return replica


def keep_replica(replica: ScheduledModel, spec: ModelSpec) -> None:
    """Let another engine of a model be loaded, and stay so."""
    replica.spec, replica.rollback_spec, replica.keep_loaded, replica.retiring = spec, None, True, False


def request_options(model: ScheduledModel, target: ModelTarget) -> None:
    """Take note of everything a load asks for. A model that has a worker is loaded again with other options."""
    if model.pending_spec is None and model.rollback_spec is None:
        model.replica_set.rollback_overrides = model.overrides
    override_policy(model, target.asked)
    for replica in model.replica_set.replicas:
        if target.spec is None or replica.spec is None or not needs_new_engine(target.spec, replica.spec):
            continue
        if replica.worker is not None:
            replica.pending_spec = target.spec
        elif replica is not model:
            replica.spec = target.spec


def override_policy(model: ScheduledModel, asked: PolicyOverrides) -> None:
    """Let a call's wishes override the model's policy, until it is unloaded."""
    before = model.overrides
    model.replica_set.overrides = PolicyOverrides(
        pinned=before.pinned if asked.pinned is None else asked.pinned,
        ttl=before.ttl if asked.ttl is None else asked.ttl,
    )
    model.replica_set.changed()


def drop_overrides(model: ScheduledModel) -> None:
    """Let only the model's policy count: an unload was requested."""
    model.replica_set.overrides = model.replica_set.rollback_overrides = PolicyOverrides()


def drop_requested_options(model: ScheduledModel) -> None:
    """No load waits any more: the model stays as it is."""
    for replica in model.replica_set.replicas:
        replica.pending_spec = replica.rollback_spec = None
    model.replica_set.changed()


def allow_refused_options(model: ScheduledModel) -> None:
    """Allow another try of options that an engine did not start with."""
    model.refused_reload = None


def forget(state: SchedulerState, model: ScheduledModel) -> None:
    """Forget an unused model, with its failures."""
    del state.models[model.key]
    state.index.forget(model)
    if len(model.replica_set.replicas) > 1:
        model.replica_set.replicas.remove(model)
        return
    del state.replica_sets[model.name]
    state.index.models.look_again(model.replica_set, NEVER_DUE)
    state.remember_use(model)
    if model.provisional:
        state.emit(ForgetModel(model.name))


def let_worker_remember(state: SchedulerState, model: ScheduledModel) -> None:
    """Tell the worker of a loaded model what calls have asked for it: another supervisor will ask for this."""
    worker = model.worker
    if worker is None or worker.remembered == model.overrides or not worker.counts_as_loaded:
        return
    worker.remembered = model.overrides
    state.emit(SendMessage(worker.id, RememberState(model.overrides)))
