"""Which replica of a model gets the request whose turn it is. Pure.

Only for models with several replicas; :mod:`supervisor.scheduler.queue.grants` serves all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.queue import grants
from supervisor.scheduler.queue.work_items import QueuedRequest
from supervisor.scheduler.replicas.prefixes import prompt_prefixes
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState


class ReplicaChoice(NamedTuple):
    """A replica, its worker, and the slots that a request gets of it."""

    replica: ScheduledModel
    worker: ScheduledWorker
    weight: int


class OpenReplica(NamedTuple):
    """A replica that takes requests which came before the order ``before``."""

    replica: ScheduledModel
    worker: ScheduledWorker
    before: int


def choose(servers: Sequence[OpenReplica], waiting: QueuedRequest) -> ReplicaChoice | None:
    """Return which replica gets a request that needs slots; None if none has enough of them free.

    The one that knows the longest prefix of its prompt, else the one with most free slots. Of equal ones, those that always
    run take turns, before those that run only while requests wait.
    """
    if len(servers) > 1 and waiting.prefixes is None:
        waiting.prefixes = prompt_prefixes(waiting.payload)
    free = [
        ReplicaChoice(replica, worker, weight)
        for replica, worker, before in servers
        if waiting.order < before and (weight := grants.free_weight(replica, waiting)) is not None
    ]
    if len(free) < 2:
        return free[0] if free else None
    return min(free, key=lambda each: _rank(each.replica, waiting.prefixes or ()))


def _rank(replica: ScheduledModel, prefixes: tuple[int, ...]) -> tuple[int, int, bool, float, int]:
    free = replica.slots - replica.busy
    at_times = replica.number > replica.policy.min_replicas
    return -replica.prefixes.longest(prefixes), -free, at_times, replica.last_use, replica.number


def grant_queued(state: SchedulerState, servers: Sequence[OpenReplica], now: float) -> None:
    """Grant while slots are free. As in :func:`grants.grant_queued`, the request whose turn it is, is never overtaken."""
    if not servers:
        return
    model = servers[0].replica
    for each in servers:
        grants.end_solitude(each.replica, now)
    for waiting in model.queue if model.queue.reads else ():
        of = next(
            (each for each in servers if waiting.order < each.before and grants.may_read(each.replica, waiting)), None
        )
        if of is not None:
            model.queue.remove(waiting.key)
            grants.grant(state, of.replica, of.worker, waiting, weight=0, now=now)
    last = max(each.before for each in servers)
    while any(each.replica.busy < each.replica.slots for each in servers):
        following = model.fair_share.next(heads := model.queue.heads(last))
        chosen = choose(servers, following) if following is not None else None
        if following is None or chosen is None:
            return
        charged = model.fair_share.take(heads)
        model.queue.remove(following.key)
        _give(state, chosen, following, now, charged)


def grant_at_once(state: SchedulerState, of: ReplicaSet, waiting: QueuedRequest, now: float) -> bool:
    """Grant, if a ready replica has free slots; only for a settled state, in which no request waits."""
    ready = [
        OpenReplica(each, each.worker, waiting.order + 1)
        for each in of.replicas
        if each.worker is not None and each.state is ModelState.READY
    ]
    chosen = choose(ready, waiting)
    if chosen is None:
        return False
    _give(state, chosen, waiting, now, charged=0.0)
    return True


def _give(state: SchedulerState, chosen: ReplicaChoice, waiting: QueuedRequest, now: float, charged: float) -> None:
    replica, worker, weight = chosen
    grants.grant(state, replica, worker, waiting, weight=weight, now=now, charged=charged)
    of = replica.replica_set
    of.scaling.note_busy(sum(each.busy for each in of.replicas))
    of.changed()
