"""Grants: slots of an engine given to a request, which is then sent to the worker. Pure.

A read (``tokenize``) gets a grant of no slots, because the engine answers it beside its generations: it need not wait
for a slot.
"""

from __future__ import annotations

from typing import Final

from protocol.messages.work import GrantedAttempt, QueueStatus, Run
from supervisor.scheduler.crash_record import origin_of
from supervisor.scheduler.effects import LogDecision, NotifyGrant, SendMessage
from supervisor.scheduler.queue.work_items import QueuedRequest, SlotGrant, key_of
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState

ANNOUNCED_AFTER_S: Final = 0.05
"""A wait shorter than this is not worth a message."""
ALONE_S: Final = 10.0
"""Seconds after which a suspect request does not run alone any more: what kills an engine mostly does so at once."""
MAX_READS: Final = 4
"""Reads that one engine answers at once.

Each takes one of its few threads besides those for slots, and for a long text 50 bytes of memory for each byte.
"""
MAX_READS_OF_KEY: Final = 2
"""Those of one API key, so that the reads of other keys do not wait for its long texts."""


def may_read(model: ScheduledModel, waiting: QueuedRequest) -> bool:
    """Return whether a request is a read that the engine of ``model`` can answer now."""
    if not waiting.is_read or model.reads >= MAX_READS:
        return False
    return model.reads_of(key_of(waiting)) < MAX_READS_OF_KEY


def free_weight(model: ScheduledModel, waiting: QueuedRequest) -> int | None:
    """Return the slots for a request that needs some, None if they are not free now.

    A suspect gets the whole engine at first, unless that is another server: it did not die, and others use it as well.
    """
    if waiting.request.suspect and not (model.spec is not None and model.spec.elsewhere):
        return None if model.busy else model.engine_slots
    slots = model.slots
    weight = min(waiting.request.weight, slots)
    return weight if model.busy + weight <= slots else None


def grant(
    state: SchedulerState,
    model: ScheduledModel,
    worker: ScheduledWorker,
    waiting: QueuedRequest,
    weight: int,
    now: float,
    charged: float = 0.0,
) -> None:
    """Give ``weight`` slots to a request and send it to the worker. ``charged``: see :class:`SlotGrant`."""
    state.count("grants")
    waited = now - waiting.since
    if weight:
        state.metrics.attempt_granted(model.name, waited)
    request = waiting.request
    its = SlotGrant(
        weight=weight,
        usual_weight=min(request.weight, weight, model.slots) if request.suspect else weight,
        began=now,
        order=waiting.order,
        caller=request.caller,
        charged=charged,
        earlier=request.earlier,
        origin=origin_of(request),
        more=request.more,
        facts=request,
        since=waiting.since,
        prefixes=waiting.prefixes,
    )
    model.add_grant(waiting.key, its)
    model.last_use = now
    if state.limits.verbose:
        fields = {
            "request_id": waiting.request.label,
            "model": model.name,
            "worker": worker.id,
            "slots": weight,
            "waited_s": round(waited, 4),
        }
        state.emit(LogDecision("debug", "granted", fields))
    send_run(state, model, worker, waiting, weight=weight, waited=waited)


def send_run(
    state: SchedulerState,
    model: ScheduledModel,
    worker: ScheduledWorker,
    waiting: QueuedRequest,
    weight: int = 0,
    waited: float = 0.0,
) -> None:
    """Send a request that has waited ``waited`` seconds and got ``weight`` slots to a worker, and tell its gateway which."""
    gateway, number, attempt = waiting.key
    request = waiting.request
    run = Run(
        gateway=gateway,
        number=number,
        attempt=attempt,
        model=request.model or model.name,
        endpoint=request.endpoint,
        label=request.label,
        stream=request.stream,
        spool=request.spool,
        query=request.query,
        waited=waited,
        weight=weight,
        api_key=request.caller.key if request.caller is not None else "",
        more=request.more,
        via=request.via,
    )
    state.emit(
        SendMessage(worker.id, run, waiting.payload),
        NotifyGrant(gateway, GrantedAttempt(number, attempt, worker.id, model.name)),
    )


def end_solitude(model: ScheduledModel, now: float) -> None:
    """Let others run beside the suspect request that has run alone for long enough."""
    for running in model.grants.values():
        if running.weight > running.usual_weight and now - running.began >= ALONE_S:
            running.weight = running.usual_weight


def grant_queued(
    state: SchedulerState, model: ScheduledModel, worker: ScheduledWorker, before: int, now: float
) -> None:
    """Grant while slots are free, for requests before the order ``before``.

    The request whose turn it is, of those of all keys, is never overtaken by one that takes a slot. Reads may run before it:
    they take none.
    """
    end_solitude(model, now)
    for waiting in model.queue if model.queue.reads else ():
        if waiting.order < before and may_read(model, waiting):
            model.queue.remove(waiting.key)
            grant(state, model, worker, waiting, weight=0, now=now)
    while (
        model.busy < model.slots
        and (following := model.fair_share.next(heads := model.queue.heads(before))) is not None
    ):
        weight = free_weight(model, following)
        if weight is None:
            return
        charged = model.fair_share.take(heads)
        model.queue.remove(following.key)
        grant(state, model, worker, following, weight=weight, now=now, charged=charged)


def announce_queued(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """Tell the gateways of requests that have waited for a moment their positions in the queue.

    Not at each step of the scheduler: finding the positions of thousands of requests takes milliseconds.
    """
    if now < model.replica_set.next_announcement:
        return
    due = model.queue.take_unannounced(now - ANNOUNCED_AFTER_S)
    if not due:
        return
    model.replica_set.next_announcement = now + ANNOUNCED_AFTER_S
    for position, waiting in enumerate(model.fair_share.order(model.queue.by_key), 1):
        if waiting.key in due:
            gateway, number, attempt = waiting.key
            state.emit(SendMessage(gateway, QueueStatus(number, attempt, position, model.wait_s(position - 1))))
