"""The requests that run and wait, as operators are shown them. Pure."""

from __future__ import annotations

from protocol.ids import RequestKey
from supervisor.scheduler.queue.work_items import QueuedRequest, SlotGrant, key_of
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.view_values import RequestView, WaitingShare


def requests_in_flight(state: SchedulerState, most: int) -> list[RequestView]:
    """Return the running requests, the longest first, then the waiting ones that are next; ``most`` altogether."""
    running = [_running(model, key, grant) for model in state.models.values() for key, grant in model.grants.items()]
    running.sort(key=lambda view: view.since)
    views = running[:most]
    for model in state.replica_sets.values():
        if len(views) >= most:
            break
        if model.queue:
            next_ones = model.fair_share.order(model.queue.by_key, most - len(views))
            views += [_waiting(model, waiting, position) for position, waiting in enumerate(next_ones, 1)]
    return views


def waiting_shares(state: SchedulerState, name: str, most: int) -> list[WaitingShare]:
    """Return what waits for a model, by API key. Only the next ``most`` requests are looked at, however many wait."""
    model = state.replica_sets[name]
    queues = model.queue.by_key
    first: dict[str, int] = {}
    for position, waiting in enumerate(model.fair_share.order(queues, most)):
        first.setdefault(key_of(waiting), position)
    return [
        WaitingShare(key, len(own), model.wait_s(first[key]) if key in first else 0.0) for key, own in queues.items()
    ]


def _running(model: ScheduledModel, key: RequestKey, grant: SlotGrant) -> RequestView:
    api_key = grant.caller.key if grant.caller is not None else ""
    worker = model.worker.id if model.worker is not None else ""
    return RequestView(key, model.name, grant.facts, api_key, grant.since, granted_at=grant.began, worker=worker)


def _waiting(model: ReplicaSet, waiting: QueuedRequest, position: int) -> RequestView:
    return RequestView(
        waiting.key,
        model.name,
        waiting.request,
        key_of(waiting),
        waiting.since,
        position=position,
        wait_s=model.wait_s(position - 1),
    )
