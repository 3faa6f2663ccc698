"""Slots lent to gateways, so that a request need not pass the supervisor: when, how many, and how they come back. Pure.

What a gateway was granted stays with it: while the board is settled and requests follow each other closely, the slots
of a request become its gateway's when it is granted, to be used again as soon as it has ended.  So a lease grows with
what its gateway has under way at once, and takes nothing that anybody could have had in that moment.  One slot always
stays, so that one who asks later need not wait for a lease's end.  As soon as anybody waits or anything moves, all
leases are recalled (:mod:`supervisor.scheduler.reconcile`), and nothing is lent for a while, which is the longer the oftener that
happens.
"""

from __future__ import annotations

from typing import Final

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.leases import IssueLease, LeasedAttempt
from protocol.messages.work import Cancel, SubmitRequest
from supervisor.scheduler.effects import SendMessage
from supervisor.scheduler.scheduled_model import ScheduledModel, SlotGrant, SlotLease
from supervisor.scheduler.state import SchedulerState

MIN_SLOTS_TO_LEND: Final = 3
"""Of an engine of which any are lent: with two, whoever comes second would wait."""
RECALL_PAUSE_S: Final = 0.1
"""How long nothing is lent after leases were recalled: at first."""
MAX_PAUSE_S: Final = 3.2
PAUSES_UNTIL_RESET: Final = 10
"""So many pauses without a recall, and the next is as short as the first again."""


class LeaseEventHandlers(SchedulerState):
    """Leases: given here, ended by the worker's word."""

    def lend(self, model: ScheduledModel, key: RequestKey, ask: SubmitRequest, now: float) -> None:
        """Let the slots of a request that was just granted belong to its gateway, for more requests like it.

        A lease that was not known to be good for its name and endpoint may have room: then only that is told.
        """
        process = model.process
        if process is None or process.facts is None or process.facts.slots < MIN_SLOTS_TO_LEND:
            return
        if now < model.recalled + model.lend_pause:
            return
        name = ask.model, ask.endpoint
        lease = model.leases.get(key.gateway)
        grows = lease is None or name in lease.names
        if grows and model.busy >= process.facts.slots:
            return
        if lease is None:
            lease = model.leases[key.gateway] = SlotLease(next(self.order))
        lease.names.add(name)
        first = 0, 0, 0
        if grows:
            weight = model.grants.pop(key).weight
            lease.slots += weight
            lease.running[key] = weight
            first = key.number, key.attempt, weight
        self.emit(
            SendMessage(process.worker, IssueLease(key.gateway, lease.number, lease.slots, *name, model.name, *first))
        )

    def lease_used(self, worker: str, gateway: str, number: int, runs: list[LeasedAttempt]) -> None:
        """A worker tells what has been running under a lease for a while."""
        lease = self._lease(worker, gateway, number)
        if lease is not None:
            lease[1].running.update(_keys(gateway, runs))

    def lease_ended(self, worker: str, gateway: str, number: int, runs: list[LeasedAttempt], now: float) -> None:
        """A worker has ended a lease: what still runs there holds grants, like everybody's.

        Their order is the lease's: whoever waits came after it.  What is known to run and was not named is what the
        worker could not put under the lease any more.
        """
        known = self._lease(worker, gateway, number)
        if known is None:
            return
        model, lease = known
        del model.leases[gateway]
        for key, weight in (lease.running | _keys(gateway, runs)).items():
            model.grants[key] = SlotGrant(weight, now, lease.number)
            if lease.orphaned:
                self.emit(SendMessage(worker, Cancel(*key, Code.GATEWAY_GONE)))
        self.settled = self.settled and not model.stuck

    def lease_idle(
        self, worker: str, key: RequestKey, seconds: float, now: float, *, under: bool
    ) -> ScheduledModel | None:
        """What ran under a lease has ended after ``seconds``, 0 if it failed. Returns its place.

        ``under``: its worker knew that it did; else it may have ended before its worker heard of that.
        """
        process = self.workers.get(worker)
        model = process.model if process else None
        if model is None:
            return None
        model.unwanted.discard(key)
        lease = model.leases.get(key.gateway)
        known = lease is not None and lease.running.pop(key, None) is not None
        if not known and not under:
            return None
        model.ended(now)
        if seconds:
            model.served(seconds)
        return model

    def _lease(self, worker: str, gateway: str, number: int) -> tuple[ScheduledModel, SlotLease] | None:
        process = self.workers.get(worker)
        lease = process.model.leases.get(gateway) if process and process.model else None
        if process is None or process.model is None or lease is None or lease.number != number:
            return None
        return process.model, lease


def _keys(gateway: str, runs: list[LeasedAttempt]) -> dict[RequestKey, int]:
    return {RequestKey(gateway, run.number, run.attempt): run.weight for run in runs}


def pause_after(model: ScheduledModel, now: float) -> float:
    """Return how long nothing is lent of a model whose leases are recalled now."""
    since = now - model.recalled
    return RECALL_PAUSE_S if since > PAUSES_UNTIL_RESET * model.lend_pause else min(MAX_PAUSE_S, 2 * model.lend_pause)
