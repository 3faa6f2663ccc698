"""How many replicas a model has, which of them take requests, and which one is loaded again with other options. Pure.

A part of :mod:`supervisor.scheduler.reconcile`, for models with several replicas only; see
:mod:`supervisor.scheduler.replicas.replica_set`. A model on a node that drains gets another replica elsewhere, before the first one leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from protocol.worker_states import WorkerState
from supervisor.scheduler import idle_ttl, known_models, model_changes
from supervisor.scheduler.effects import LogDecision
from supervisor.scheduler.model_states import TO_BE_LOADED, ModelState
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.replicas.scaling import MAX_WAIT_S
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState

ANOTHER_TRY_S: Final = 30.0
"""After one could not be loaded beside others, this long passes before another one is tried."""
_ON_THE_WAY: Final = TO_BE_LOADED | {ModelState.LOADING, ModelState.RESTARTING, ModelState.RELOADING}


def adjust(state: SchedulerState, of: ReplicaSet, now: float) -> None:
    """Add a replica if too few run, or let one go if too many do. One at a time, while one of them is ready."""
    leaving = [each for each in of.replicas if _leaves_node(state, each)]
    of.leaves_nodes = bool(leaving)
    if of.policy.max_replicas == 1 and len(of.replicas) == 1 and not leaving and not of.replicas[0].retiring:
        return
    running = [each for each in of.replicas if each.keep_loaded or each.worker is not None]
    if not running:
        of.scaling.reset()
    for each in of.replicas:
        each.retiring = each.retiring and each in running
    lead = of.lead
    if state.closing or lead.state is not ModelState.READY or lead.worker is None:
        return
    of.scaling.observe(
        now,
        waited=0.0 if not of.queue else now - of.queue.first_since,
        busy=sum(each.busy for each in running),
        slots=sum(each.slots for each in running),
        serving=len(of.serving),
    )
    if any(each.unloaders or each.pending_spec is not None for each in running):
        return
    if leaving:
        _move_one(state, of, leaving, running, now)
        return
    if len(running) > of.scaling.wanted:
        _let_one_go(state, of, running)
        return
    for each in running:
        each.retiring = False
    _add_one(state, of, running, now)


def _add_one(state: SchedulerState, of: ReplicaSet, staying: Sequence[ScheduledModel], now: float) -> None:
    """Add a replica, if fewer are to stay than are wanted."""
    number, lead = _next_number(of, staying, now), of.lead
    if number is not None and lead.spec is not None and not idle_ttl.expired(lead, now):
        replica = of.replica(number) or known_models.add_replica(state, of, number)
        known_models.keep_replica(replica, lead.spec)


def _next_number(of: ReplicaSet, running: Sequence[ScheduledModel], now: float) -> int | None:
    """Return the number of the replica that is to be added now; None if none is."""
    if (
        len(running) >= of.scaling.wanted
        or any(each.state in _ON_THE_WAY for each in running)
        or now < of.next_replica_at
    ):
        return None
    number = next(each for each in range(1, len(of.replicas) + 2) if of.is_free(each))
    replica = of.replica(number)
    allowed = replica is None or (replica.state is ModelState.ABSENT and not replica.backoff.pause(now))
    return number if allowed else None


def next_look(of: ReplicaSet, now: float) -> float:
    """Return when time alone may change something about the replicas of a model."""
    if of.policy.max_replicas == 1 and len(of.replicas) == 1 and not of.leaves_nodes:
        return math.inf
    times = [of.scaling.due_at]
    if of.next_replica_at > now:
        times.append(of.next_replica_at)
    if of.queue and (slow_at := of.queue.first_since + MAX_WAIT_S) >= now:
        times.append(slow_at)
    return min(times)


def is_settled(of: ReplicaSet, now: float) -> bool:
    """Return whether nothing is to be changed about the replicas of a model."""
    if of.leaves_nodes:
        return False
    if of.policy.max_replicas == 1 and len(of.replicas) == 1:
        return True
    running = [each for each in of.replicas if each.keep_loaded or each.worker is not None]
    if not running:
        return True
    return len(running) <= of.scaling.wanted and _next_number(of, running, now) is None


def give_up(state: SchedulerState, replica: ScheduledModel, now: float) -> None:
    """Do not load a replica that does not fit beside others, for now."""
    if replica.state is ModelState.CHECKED:
        model_changes.release_worker(state, replica)
    model_changes.stop_keeping(replica)
    replica.replica_set.next_replica_at = now + ANOTHER_TRY_S


def _leaves_node(state: SchedulerState, model: ScheduledModel) -> bool:
    """Return whether the node of a replica drains. A model that other servers run has no node to leave."""
    worker, spec = model.worker, model.spec
    return worker is not None and spec is not None and not spec.elsewhere and state.node_of(worker).draining


def _move_one(
    state: SchedulerState,
    of: ReplicaSet,
    leaving: list[ScheduledModel],
    running: list[ScheduledModel],
    now: float,
) -> None:
    """Load a replica elsewhere for one whose node drains; when that serves, or no node can take it, let the old one go."""
    staying = [each for each in running if each not in leaving]
    _add_one(state, of, staying, now)
    staying = [each for each in of.replicas if each not in leaving and (each.keep_loaded or each.worker is not None)]
    if any(each.state in _ON_THE_WAY or each.state is ModelState.ABSENT for each in staying):
        return
    one = next((each for each in leaving if each.retiring), None) or min(leaving, key=_worth)
    why = "it was loaded on another node" if len(staying) >= of.scaling.wanted else "no other node can take it now"
    _let_go(state, one, running, "model leaves its node, which drains", {"reason": why})


def _let_one_go(state: SchedulerState, of: ReplicaSet, running: list[ScheduledModel]) -> None:
    """Choose a replica that serves least, give it no more requests, and unload it once it has none."""
    spared = [each for each in running if each.state is not ModelState.READY and each is not of.lead]
    retiring = next((each for each in running if each.retiring), None)
    one = spared[-1] if spared else retiring or min(running, key=_worth)
    _let_go(state, one, running, "replica unloaded, fewer suffice", {"wanted": of.scaling.wanted})


def _let_go(
    state: SchedulerState, one: ScheduledModel, running: list[ScheduledModel], event: str, why: dict[str, Any]
) -> None:
    """Give a replica no more requests, and unload it once it has none."""
    if one.state in (ModelState.UNLOADING, ModelState.DRAINING):
        return
    for each in running:
        each.retiring = each is one
    worker = one.worker
    if worker is None or worker.state in (WorkerState.CHECKING, WorkerState.CHECKED):
        model_changes.stop_keeping(one)
        model_changes.release_worker(state, one)
    elif not one.grants and one.state is not ModelState.RELOADING:
        fields = {"model": one.name, "replica": one.number, "worker": worker.id, **state.on_node(worker.node), **why}
        state.emit(LogDecision("info", event, fields))
        model_changes.unload(state, one, worker)


def _worth(replica: ScheduledModel) -> tuple[int, float, int]:
    """Return how much a replica serves: the one with the least is let go."""
    return len(replica.grants), replica.last_use, -replica.number


def takes_requests(model: ScheduledModel) -> bool:
    """Return whether a replica takes requests: not if it is to go, nor while another one has the options that it is to get."""
    if model.worker is None or not model.worker.serves or model.unloaders or model.retiring:
        return False
    if model.pending_spec is None:
        return True
    has_new = any(each.pending_spec is None for each in model.replica_set.serving)
    return not has_new and not reloads_now(model)


def reloads_now(model: ScheduledModel) -> bool:
    """Return whether a model is now to be loaded again with the options that wait: replicas one after the other."""
    of = model.replica_set
    if model.pending_spec is None or len(of.replicas) == 1:
        return model.pending_spec is not None
    if model.state is ModelState.DRAINING:
        return True
    others = [each for each in of.replicas if each is not model]
    if any(each.state in _ON_THE_WAY or (each.pending_spec and each.state is ModelState.DRAINING) for each in others):
        return False
    waiting = [each for each in of.replicas if each.pending_spec is not None and each.state is ModelState.READY]
    return bool(waiting) and model is min(waiting, key=_worth)
