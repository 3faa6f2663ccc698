"""What becomes of the leases: told to the gateways, used, given back to the supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from protocol import wire
from protocol.events import Event, Kind, pack_batch
from protocol.ids import RequestKey, topic
from protocol.leases import LeaseEnded, LeaseUsed, Lend, Offer, Used
from protocol.loop import Loop
from protocol.work import Run
from workers.attempt import Attempt
from workers.audience import Audience
from workers.bus import Bus
from workers.leases import UNUSED_S, Lease, Leases

LOOK_S: Final = UNUSED_S
"""How often it is looked what runs under leases, and whether they are still of use."""


class Lending:
    """The leases of one worker, and the messages about them."""

    def __init__(self, loop: Loop, bus: Bus, audience: Audience, attempts: Mapping[RequestKey, Attempt]) -> None:
        """``attempts``: all that are under way."""
        self._loop, self._bus, self._audience, self._attempts = loop, bus, audience, attempts
        self._leases = Leases()
        self._told: set[RequestKey] = set()
        """Attempts that the supervisor knows of."""
        self._looking = False

    def lend(self, message: Lend, *, open_for: bool) -> None:
        """Let a gateway know what it may use; if it cannot be told, or nothing may run now, the lease is over."""
        now = self._loop.now()
        if not self._leases.lend(message, now):
            return
        attempt = self._attempts.get(RequestKey(message.gateway, message.number, message.attempt))
        first = 0, 0
        if attempt is not None:
            self._leases.take(message.gateway, message.lease, message.weight, now)
            attempt.run = msgspec.structs.replace(attempt.run, lease=message.lease, weight=message.weight)
            self._told.add(attempt.key)
            first = message.number, message.attempt
        offer = Offer(message.lease, message.slots, message.name, message.endpoint, message.model)
        event = Event(*first, 0, Kind.LENT, 0, wire.pack(offer))
        if not (open_for and self._audience.hears(message.gateway) and self._publish(message.gateway, event)):
            self.end(message.gateway, message.lease)
        elif not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)

    def end(self, gateway: str, number: int) -> None:
        """End a lease, and say what still runs under it."""
        if not self._leases.end(gateway, number):
            return
        runs = [_used(attempt.run) for attempt in self._under(gateway, number)]
        self._told.difference_update(RequestKey(gateway, run.number, run.attempt) for run in runs)
        self._bus.send(LeaseEnded(gateway, number, runs))
        self._publish(gateway, Event(0, 0, 0, Kind.LEASE_OVER, number))

    def __bool__(self) -> bool:
        """Return whether anything is lent."""
        return bool(self._leases)

    def take(self, run: Run) -> bool:
        """Return whether a gateway's own run may begin; if its lease is over, it is told so again."""
        if self._leases.take(run.gateway, run.lease, run.weight, self._loop.now()):
            return True
        if not self.holds(run):
            self._publish(run.gateway, Event(0, 0, 0, Kind.LEASE_OVER, run.lease))
        return False

    def holds(self, run: Run) -> bool:
        """Return whether the lease that a run began under still stands."""
        return self._leases.holds(run.gateway, run.lease)

    def give(self, run: Run) -> None:
        """Take note that it has ended."""
        self._leases.give(run.gateway, run.lease, run.weight, self._loop.now())
        self._told.discard(RequestKey(run.gateway, run.number, run.attempt))

    def clear(self) -> None:
        """The engine is gone, and the supervisor knows that all leases went with it."""
        for lease in self._leases.clear():
            self._publish(lease.gateway, Event(0, 0, 0, Kind.LEASE_OVER, lease.number))
        self._told.clear()

    def gateway_left(self, gateway: str) -> None:
        """Nobody is there to use its lease."""
        for lease in self._leases.all():
            if lease.gateway == gateway:
                self.end(gateway, lease.number)

    def end_all(self) -> None:
        """Nothing may run any more, but what runs goes on."""
        for lease in self._leases.all():
            self.end(lease.gateway, lease.number)

    def _look(self) -> None:
        self._looking = False
        for lease in self._leases.unused(self._loop.now(), {key.gateway for key in self._attempts}):
            self.end(lease.gateway, lease.number)
        for lease in self._leases.all():
            self._tell(lease)
        if self._leases:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)

    def _tell(self, lease: Lease) -> None:
        """Tell the supervisor what runs for longer than a look, so that whoever asks it hears the truth."""
        news = [attempt for attempt in self._under(lease.gateway, lease.number) if attempt.key not in self._told]
        if news:
            self._told.update(attempt.key for attempt in news)
            self._bus.send(LeaseUsed(lease.gateway, lease.number, [_used(attempt.run) for attempt in news]))

    def _under(self, gateway: str, number: int) -> list[Attempt]:
        return [each for each in self._attempts.values() if each.run.lease == number and each.run.gateway == gateway]

    def _publish(self, gateway: str, event: Event) -> bool:
        return self._bus.publish(topic(gateway), pack_batch([event]))


def _used(run: Run) -> Used:
    return Used(run.number, run.attempt, run.weight)
