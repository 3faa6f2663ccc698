"""Reconcile: all drains, grants, checks, loads and stops that the present state allows. Pure.

Called after every event. It derives everything from the state, so nothing has to be undone: an unnecessary drain is
simply called off. It only looks at the models that have changed since the last look or for which it is time, because what is
due for a model follows from itself, the time and the claims on it.

A model to be evicted accepts no request that came after the one that it is evicted for. It is only stopped once the
other model has passed all checks that need no engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from supervisor.scheduler import idle_ttl, known_models, model_changes, spare_workers
from supervisor.scheduler.due_queue import NEVER_DUE
from supervisor.scheduler.effects import LogDecision, RequestResources
from supervisor.scheduler.eviction import EVICTED
from supervisor.scheduler.loads import dry_runs, progress
from supervisor.scheduler.loads.assignment import (
    LAST_ORDER,
    assign_workers,
)
from supervisor.scheduler.loads.refusals import release_if_checked
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.nodes.node_comparisons import look_again_by
from supervisor.scheduler.nodes.reservations import EvictionClaim
from supervisor.scheduler.queue import answers, batches
from supervisor.scheduler.queue.grants import ALONE_S, ANNOUNCED_AFTER_S, announce_queued, grant_queued
from supervisor.scheduler.replicas import replica_choice, replication
from supervisor.scheduler.replicas.replica_choice import OpenReplica
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduled_model import NEVER, ScheduledModel
from supervisor.scheduler.scheduled_worker import Eviction
from supervisor.scheduler.scheduler_node import SchedulerNode
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_events import stop_reason

MAX_REMEMBERED_FAILURES: Final = 64
"""For this many models without a worker, the last failure is remembered."""
ABANDONED: Final = "abandoned"
"""The reason for restarting an engine that only works for clients that are gone."""


def reconcile(state: SchedulerState, now: float) -> None:
    """Do all that can be done now."""
    state.settled = False  # if something raises, the next event tries again
    with state.index.models.look(now) as models, state.index.nodes.look(now) as nodes:
        _reconcile(state, [each for each in models if state.knows(each)], nodes, now)
    state.settled = _is_settled(state, now)


def _reconcile(state: SchedulerState, due: list[ReplicaSet], nodes: list[SchedulerNode], now: float) -> None:
    _note_nodes(state, nodes)
    for each in due:
        replication.adjust(state, each, now)
    for model in _replicas(due):
        if state.closing:
            answers.refuse_at_end(state, model)  # its engine may have died since
        else:
            idle_ttl.unload_expired(state, model, now)
            model_changes.update_demand(state, model, now)
        _restart(state, model, now)
        if not model.demanded:
            release_if_checked(state, model)
    loads = assign_workers(state, due, _nodes_to_look_at(state, due, nodes), now)
    claimed = [state.models[key].replica_set for key in loads.claimed if key in state.models]
    due = [each for each in state.index.models.with_changed([*due, *claimed]) if state.knows(each)]
    for model in _replicas(due):
        claim = state.claims.get(model.key)
        _drain_or_resume(state, model, claim)
        _grant(state, model, state.claims, now)
        batches.give_way(state, model)
        _finish_drain(state, model, claim, now)
        announce_queued(state, model, now)
        progress.note_beginning(model, now)
        known_models.let_worker_remember(state, model)
        at_rest = _has_nothing_to_do(model) and replication.is_settled(model.replica_set, now)
        state.index.looked_at(model, waits_or_moves=not at_rest)
    for each in {*due, *loads.models}:
        if state.knows(each):
            state.index.models.look_again(each, _next_look(state, each, now))
    dry_runs.advance_plans(state, now)
    if not state.closing:
        spare_workers.replace_silent_workers(state, now)
        spare_workers.keep_spares(state, loads.nodes, nodes, now)
    _forget_unused(state, now)
    if state.limits.scales and (bundles := state.unmet.changed(now)) is not None:
        state.emit(RequestResources(bundles))


def _note_nodes(state: SchedulerState, nodes: Iterable[SchedulerNode]) -> None:
    """Note on which of these nodes settings may not let all loaded models stay, and where nothing may be loaded."""
    for node in nodes:
        crowded = sum(worker.counts_as_loaded for worker in node.workers.values()) > state.limits.models
        (state.index.crowded.add if crowded else state.index.crowded.discard)(node.name)
        (state.index.troubled.add if node.is_troubled else state.index.troubled.discard)(node.name)


def _nodes_to_look_at(state: SchedulerState, due: list[ReplicaSet], nodes: list[SchedulerNode]) -> set[str]:
    """Return the nodes where loads are to be decided again: one with anything new. Groups can forbid models of all nodes."""
    if state.policies.groups and (due or nodes):
        return set(state.nodes)
    workers = [model.worker for model in _replicas(due) if model.worker is not None]
    found = {node.name for node in nodes} | {worker.node for worker in workers} | state.index.crowded
    return found & state.nodes.keys()


def _replicas(of: Iterable[ReplicaSet]) -> list[ScheduledModel]:
    return [model for each in of for model in each.replicas]


def _next_look(state: SchedulerState, of: ReplicaSet, now: float) -> float:
    """Return when time alone may make something due for a model."""
    times = [NEVER_DUE, replication.next_look(of, now)]
    since = of.queue.unannounced_since
    if since is not None:
        times.append(max(since + ANNOUNCED_AFTER_S, of.next_announcement))
    for model in of.replicas:
        if (expires_at := idle_ttl.expires_at(model)) is not None:
            times.append(expires_at)
        if pause := model.backoff.pause(now):
            times.append(now + pause)
        times.append(look_again_by(state, model, now))
        if of.queue:
            times += [grant.began + ALONE_S for grant in model.grants.values() if grant.weight > grant.usual_weight]
    return min(times)


def _is_settled(state: SchedulerState, now: float) -> bool:
    """Return whether only an event can change anything: all models are ready, and nothing waits."""
    return (
        not state.closing
        and not state.plans
        and state.index.all_at_rest
        and not any(node.spawn_backoff.pause(now) for node in _troubled_nodes(state))
    )


def _troubled_nodes(state: SchedulerState) -> list[SchedulerNode]:
    known = [state.nodes[name] for name in state.index.troubled if name in state.nodes]
    return [*known, *state.index.nodes.pending]


def _has_nothing_to_do(model: ScheduledModel) -> bool:
    if model.queue or model.loaders or model.unloaders or model.pending_spec is not None:
        return False
    return model.state is ModelState.READY or model.unused()


# ---- loads -------------------------------------------------------------------------------------------------------


def _restart(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """Start the engine again in a worker that survived its death."""
    worker = model.worker
    if model.state is not ModelState.RESTARTING or worker is None or model.spec is None:
        return
    if not model.keep_loaded or model.unloaders or state.closing:
        model_changes.unload(state, model, worker)
    elif model.pending_spec is not None:
        model_changes.reload(state, model, worker)
    elif model.backoff.pause(now) == 0.0:
        model_changes.start_engine(state, model, model.spec, worker, now)
        state.count("restarts")


# ---- drains and grants -------------------------------------------------------------------------------------------


def _drain_or_resume(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None) -> None:
    worker = model.worker
    if worker is None or not worker.serves:
        return
    must = claim is not None or model.unloaders or replication.reloads_now(model) or state.closing or model.stuck
    if must and model.state is ModelState.READY:
        model_changes.drain(model, worker)
        fields = {"model": model.name, "worker": worker.id, "reason": _why(state, model, claim)}
        state.emit(LogDecision("info", "model drains", fields))
    elif not must and model.state is ModelState.DRAINING:
        model_changes.resume(model, worker)
        answers.answer_loads(state, model)  # that came while it drained


def _why(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None) -> str:
    why = stop_reason(state, model)
    return claim.why if claim is not None and why == EVICTED else why


def _grant(state: SchedulerState, model: ScheduledModel, claims: Mapping[str, EvictionClaim], now: float) -> None:
    worker, replicas = model.worker, model.replica_set.replicas
    if len(replicas) > 1:
        if model is replicas[0]:
            servers = [
                OpenReplica(each, each.worker, _before(each, claims))
                for each in replicas
                if each.worker is not None and replication.takes_requests(each)
            ]
            replica_choice.grant_queued(state, servers, now)
    elif worker is not None and worker.serves and not model.unloaders and model.pending_spec is None:
        grant_queued(state, model, worker, _before(model, claims), now)


def _before(model: ScheduledModel, claims: Mapping[str, EvictionClaim]) -> int:
    """Return the order before which requests are granted: a model that is to be evicted takes no later ones."""
    claim = claims.get(model.key)
    return max(model.cutoff, claim.order) if claim else LAST_ORDER


def _finish_drain(state: SchedulerState, model: ScheduledModel, claim: EvictionClaim | None, now: float) -> None:
    """Stop a draining model that no longer has clients."""
    worker = model.worker
    if worker is None or model.state is not ModelState.DRAINING or model.has_clients:
        return
    if state.closing and model.serves_to_the_end and (model.queue or model.unfinished):
        return
    asked = bool(model.unloaders) or model.pending_spec is not None or state.closing
    evicted = claim is not None and claim.sure
    if not asked and not evicted and not model.stuck:
        return
    if model.grants:
        why = claim.why if claim is not None and evicted and not asked else stop_reason(state, model)
        fields = {"model": model.name, "worker": worker.id, "reason": why}
        state.emit(LogDecision("warning", "engine ended, the clients of its requests are gone", fields))
    if asked:
        reload = model.pending_spec is not None and not model.unloaders and not state.closing
    else:
        # Without a claim, it is loaded again without a request, as after a death.
        reload = not evicted
        state.count("restarts" if reload else "evictions")
        if claim is not None and evicted:
            state.metrics.model_evicted(claim.reason)
            idle_s = None if model.last_use == NEVER else now - model.last_use
            worker.eviction = Eviction(
                claim.model, claim.request, claim.reason, idle_s, state.node_of(worker).memory.capacities
            )
        else:
            state.metrics.engine_restarted(model.name, ABANDONED)
    stop = model_changes.reload if reload else model_changes.unload
    stop(state, model, worker)


# ---- memory of the past ------------------------------------------------------------------------------------------


def _forget_unused(state: SchedulerState, now: float) -> None:
    """Forget the models of which nothing is left. If there are very many failures, forget the oldest."""
    unused = [model for model in state.index.unused if model.unused() and not model.is_needed_as_first]
    unused.sort(key=lambda model: (model.replica_set.serial, model.number))
    failed = sorted(
        (model for model in unused if model.backoff.recently_failed(now)), key=lambda model: model.backoff.failed_at
    )
    remembered = failed[-MAX_REMEMBERED_FAILURES:]
    for model in unused:
        if model not in remembered:
            known_models.forget(state, model)
