"""Slots lent to gateways, so that a request need not pass the supervisor: when, how many, and how they come back. Pure.

What a gateway was granted stays with it: while the board is settled and requests follow each other closely, the slots
of a request become its gateway's when it is granted, to be used again as soon as it has ended.  So a lease grows with
what its gateway has under way at once, and takes nothing that anybody could have had in that moment.  One slot always
stays, so that one who asks later need not wait for a lease's end.  As soon as anybody waits or anything moves, all
leases are recalled (:mod:`supervisor.turns`), and nothing is lent for a while, which is the longer the oftener that
happens.
"""

from __future__ import annotations

from typing import Final

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.leases import Lend, Used
from protocol.work import Ask, Cancel
from supervisor.board import Board
from supervisor.effects import Send
from supervisor.places import Grant, Lease, Place

FEWEST_SLOTS: Final = 3
"""Of an engine of which any are lent: with two, whoever comes second would wait."""
RECALL_PAUSE_S: Final = 0.1
"""How long nothing is lent after leases were recalled: at first."""
LONGEST_PAUSE_S: Final = 3.2
CALM_PAUSES: Final = 10
"""So many pauses without a recall, and the next is as short as the first again."""


class Lending(Board):
    """Leases: given here, ended by the worker's word."""

    def lend(self, place: Place, key: RequestKey, ask: Ask, now: float) -> None:
        """Let the slots of a request that was just granted belong to its gateway, for more requests like it.

        A lease that was not known to be good for its name and endpoint may have room: then only that is told.
        """
        seat = place.seat
        if seat is None or seat.facts is None or seat.facts.slots < FEWEST_SLOTS:
            return
        if now < place.recalled + place.lend_pause:
            return
        name = ask.model, ask.endpoint
        lease = place.leases.get(key.gateway)
        grows = lease is None or name in lease.names
        if grows and place.busy >= seat.facts.slots:
            return
        if lease is None:
            lease = place.leases[key.gateway] = Lease(next(self.order))
        lease.names.add(name)
        first = 0, 0, 0
        if grows:
            weight = place.grants.pop(key).weight
            lease.slots += weight
            lease.running[key] = weight
            first = key.number, key.attempt, weight
        self.emit(Send(seat.worker, Lend(key.gateway, lease.number, lease.slots, *name, place.name, *first)))

    def lease_used(self, worker: str, gateway: str, number: int, runs: list[Used]) -> None:
        """A worker tells what has been running under a lease for a while."""
        lease = self._lease(worker, gateway, number)
        if lease is not None:
            lease[1].running.update(_keys(gateway, runs))

    def lease_ended(self, worker: str, gateway: str, number: int, runs: list[Used], now: float) -> None:
        """A worker has ended a lease: what still runs there holds grants, like everybody's.

        Their order is the lease's: whoever waits came after it.  What is known to run and was not named is what the
        worker could not put under the lease any more.
        """
        known = self._lease(worker, gateway, number)
        if known is None:
            return
        place, lease = known
        del place.leases[gateway]
        for key, weight in (lease.running | _keys(gateway, runs)).items():
            place.grants[key] = Grant(weight, now, lease.number)
            if lease.orphaned:
                self.emit(Send(worker, Cancel(*key, Code.GATEWAY_GONE)))

    def lease_idle(self, worker: str, key: RequestKey, seconds: float, now: float, *, under: bool) -> Place | None:
        """What ran under a lease has ended after ``seconds``, 0 if it failed. Returns its place.

        ``under``: its worker knew that it did; else it may have ended before its worker heard of that.
        """
        seat = self.seats.get(worker)
        place = seat.place if seat else None
        if place is None:
            return None
        place.unwanted.discard(key)
        lease = place.leases.get(key.gateway)
        known = lease is not None and lease.running.pop(key, None) is not None
        if not known and not under:
            return None
        place.ended(now)
        if seconds:
            place.served(seconds)
        return place

    def _lease(self, worker: str, gateway: str, number: int) -> tuple[Place, Lease] | None:
        seat = self.seats.get(worker)
        lease = seat.place.leases.get(gateway) if seat and seat.place else None
        if seat is None or seat.place is None or lease is None or lease.number != number:
            return None
        return seat.place, lease


def _keys(gateway: str, runs: list[Used]) -> dict[RequestKey, int]:
    return {RequestKey(gateway, run.number, run.attempt): run.weight for run in runs}


def pause_after(place: Place, now: float) -> float:
    """Return how long nothing is lent of a model whose leases are recalled now."""
    since = now - place.recalled
    return RECALL_PAUSE_S if since > CALM_PAUSES * place.lend_pause else min(LONGEST_PAUSE_S, 2 * place.lend_pause)
