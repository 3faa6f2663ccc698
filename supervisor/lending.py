"""Slots lent to gateways, so that a request need not pass the supervisor: when, how many, and how they come back. Pure.

Only a settled board lends, and only to a gateway whose requests follow each other closely, when one of them has ended
and half of the slots are free: while more are coming than going, what is lent would be missed before its gateway has
heard of it.  Half of what is free is lent, and one slot always stays: whoever asks then need not wait for a lease's
end.  As soon as anybody waits or anything moves, all leases are recalled (:mod:`supervisor.turns`).
"""

from __future__ import annotations

from typing import Final

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.leases import Lend, Used
from protocol.work import Cancel
from supervisor.board import Board
from supervisor.effects import Send
from supervisor.lifecycle import State
from supervisor.places import Grant, Lease, Place

LEND_PAUSE_S: Final = 0.02
"""How long nothing more is lent of a model: what its gateways had asked before they heard of the last still comes."""


class Lending(Board):
    """Leases: given here, ended by the worker's word."""

    def lend(self, place: Place, gateway: str, name: tuple[str, str], now: float) -> None:
        """Lend to a gateway whose request has just ended, if most is free, for more requests of the same ``name``."""
        seat = place.seat
        if seat is None or seat.state is not State.READY or seat.facts is None or now < place.lend_after:
            return
        slots = seat.facts.slots
        free = slots - place.busy
        more = free // 2 if slots > 2 and 2 * free >= slots else 0
        lease = place.leases.get(gateway)
        if lease is None:
            if not more:
                return
            lease = place.leases[gateway] = Lease(next(self.order))
        elif lease.recalled or (not more and name in lease.names):
            return
        place.lend_after = now + LEND_PAUSE_S
        lease.slots += more
        lease.names.add(name)
        self.emit(Send(seat.worker, Lend(gateway, lease.number, lease.slots, *name, place.name)))

    def lease_used(self, worker: str, gateway: str, number: int, runs: list[Used]) -> None:
        """A worker tells what has been running under a lease for a while."""
        lease = self._lease(worker, gateway, number)
        if lease is not None:
            lease[1].running.update({RequestKey(gateway, run.number, run.attempt): run.weight for run in runs})

    def lease_ended(self, worker: str, gateway: str, number: int, runs: list[Used], now: float) -> None:
        """A worker has ended a lease: what still runs there holds grants, like everybody's.

        Their order is the lease's: whoever waits came after it.
        """
        known = self._lease(worker, gateway, number)
        if known is None:
            return
        place, lease = known
        del place.leases[gateway]
        for run in runs:
            key = RequestKey(gateway, run.number, run.attempt)
            place.grants[key] = Grant(run.weight, now, lease.number)
            if lease.orphaned:
                self.emit(Send(worker, Cancel(*key, Code.GATEWAY_GONE)))

    def lease_idle(self, worker: str, key: RequestKey, seconds: float, now: float) -> Place | None:
        """What ran under a lease has ended after ``seconds``, 0 if it failed. Returns its place."""
        seat = self.seats.get(worker)
        place = seat.place if seat else None
        if place is None:
            return None
        lease = place.leases.get(key.gateway)
        if lease is not None:
            lease.running.pop(key, None)
        place.last_use = now
        if seconds:
            place.served(seconds)
        return place

    def _lease(self, worker: str, gateway: str, number: int) -> tuple[Place, Lease] | None:
        seat = self.seats.get(worker)
        lease = seat.place.leases.get(gateway) if seat and seat.place else None
        if seat is None or seat.place is None or lease is None or lease.number != number:
            return None
        return seat.place, lease
