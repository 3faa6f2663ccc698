"""Leases of slots to gateways, so that a request need not pass the supervisor: when, how many, and how they end. Pure.

While the state is settled and requests follow each other closely, the slots of a request stay with its gateway when it
is granted, to be used again as soon as it has ended.  So a lease grows with what its gateway has under way at once, and
takes no slot that was free for others at that moment.  One slot is never leased, so that a later request of another
gateway need not wait for a lease's end.  As soon as anything waits or moves, all leases are revoked
(:mod:`supervisor.scheduler.reconcile`), and none are issued for a while; that pause doubles with each revocation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.leases import IssueLease, LeasedAttempt, RevokeLease
from protocol.messages.work import Cancel, SubmitRequest
from supervisor.scheduler.effects import SendMessage
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.work_items import SlotGrant, SlotLease

MIN_SLOTS_FOR_LEASES: Final = 3
"""An engine with fewer slots gets no leases: with two, the second gateway would always wait."""
FIRST_LEASE_PAUSE_S: Final = 0.1
"""How long no lease is issued after leases were revoked: at first."""
MAX_PAUSE_S: Final = 3.2
PAUSES_UNTIL_RESET: Final = 10
"""After this many pauses without a revocation the next one is as short as the first."""


def issue_lease(
    state: SchedulerState, model: ScheduledModel, key: RequestKey, request: SubmitRequest, now: float
) -> None:
    """Let the slots of a request that was just granted stay with its gateway, for more requests like it.

    A lease that was not known to be good for its name and endpoint may have free slots: then it only learns of them.
    """
    process = model.process
    if process is None or process.facts is None or process.facts.slots < MIN_SLOTS_FOR_LEASES:
        return
    if now < model.revoked_at + model.lease_pause:
        return
    name = request.model, request.endpoint
    lease = model.leases.get(key.gateway)
    grows = lease is None or name in lease.names
    if grows and model.busy >= process.facts.slots:
        return
    if lease is None:
        lease = model.leases[key.gateway] = SlotLease(next(state.order))
    lease.names.add(name)
    first = 0, 0, 0
    if grows:
        weight = model.grants.pop(key).weight
        lease.slots += weight
        lease.running[key] = weight
        first = key.number, key.attempt, weight
    issue = IssueLease(key.gateway, lease.number, lease.slots, *name, model.name, *first)
    state.emit(SendMessage(process.worker, issue))


def revoke_leases(state: SchedulerState, now: float) -> None:
    """Revoke all leases: something waits or moves, and then every request is scheduled here."""
    for model in state.models.values():
        revoked = False
        for gateway, lease in model.leases.items():
            if not lease.revoked and model.process is not None:
                lease.revoked = revoked = True
                state.emit(SendMessage(model.process.worker, RevokeLease(gateway, lease.number)))
        if revoked:
            state.count("leases_revoked")
            model.lease_pause = _next_pause(model, now)
            model.revoked_at = now


def _next_pause(model: ScheduledModel, now: float) -> float:
    since = now - model.revoked_at
    return (
        FIRST_LEASE_PAUSE_S
        if since > PAUSES_UNTIL_RESET * model.lease_pause
        else min(MAX_PAUSE_S, 2 * model.lease_pause)
    )


def lease_used(state: SchedulerState, worker: str, gateway: str, number: int, runs: Sequence[LeasedAttempt]) -> None:
    """A worker reports what has been running under a lease for a while."""
    lease = _find_lease(state, worker, gateway, number)
    if lease is not None:
        lease[1].running.update(_keys(gateway, runs))


def lease_ended(
    state: SchedulerState, worker: str, gateway: str, number: int, runs: Sequence[LeasedAttempt], now: float
) -> None:
    """A worker has ended a lease: what still runs there holds ordinary grants from now on.

    Their order is the lease's, because all requests that wait came after it.  An attempt that is known to run
    and is not in ``runs`` came too late for the worker to put it under the lease.
    """
    known = _find_lease(state, worker, gateway, number)
    if known is None:
        return
    model, lease = known
    del model.leases[gateway]
    for key, weight in (lease.running | _keys(gateway, runs)).items():
        model.grants[key] = SlotGrant(weight, now, lease.number)
        if lease.orphaned:
            state.emit(SendMessage(worker, Cancel(*key, Code.GATEWAY_GONE)))
    state.settled = state.settled and not model.stuck


def leased_attempt_ended(
    state: SchedulerState, worker: str, key: RequestKey, seconds: float, now: float, *, under: bool
) -> ScheduledModel | None:
    """An attempt under a lease has ended after ``seconds``, 0 if it failed. Returns its model.

    ``under``: the worker knew that it ran under a lease; else it may have ended before the worker heard of the lease.
    """
    process = state.workers.get(worker)
    model = process.model if process else None
    if model is None:
        return None
    model.abandoned.discard(key)
    lease = model.leases.get(key.gateway)
    known = lease is not None and lease.running.pop(key, None) is not None
    if not known and not under:
        return None
    model.used_until(now)
    if seconds:
        model.measure_service(seconds)
    return model


def _find_lease(
    state: SchedulerState, worker: str, gateway: str, number: int
) -> tuple[ScheduledModel, SlotLease] | None:
    process = state.workers.get(worker)
    model = process.model if process else None
    lease = model.leases.get(gateway) if model else None
    if model is None or lease is None or lease.number != number:
        return None
    return model, lease


def _keys(gateway: str, runs: Sequence[LeasedAttempt]) -> dict[RequestKey, int]:
    return {RequestKey(gateway, run.number, run.attempt): run.weight for run in runs}
