"""What becomes of the leases: told to the gateways, used, given back to the supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.ids import RequestKey, topic
from protocol.messages.events import Event, EventKind, pack_batch
from protocol.messages.leases import IssueLease, LeasedAttempt, LeaseEnded, LeaseTerms, LeaseUsed
from protocol.messages.work import Run
from protocol.runtime.loop import Loop
from protocol.wire import envelope
from workers.worker.attempt import Attempt
from workers.worker.bus import WorkerBus
from workers.worker.leases import UNUSED_LEASE_S, WorkerLease, WorkerLeases
from workers.worker.subscriptions import Subscriptions

LEASE_CHECK_INTERVAL_S: Final = UNUSED_LEASE_S
"""How often it is looked what runs under leases, and whether they are still of use."""


class WorkerLeaseManager:
    """The leases of one worker, and the messages about them."""

    def __init__(
        self, loop: Loop, bus: WorkerBus, subscriptions: Subscriptions, attempts: Mapping[RequestKey, Attempt]
    ) -> None:
        """``attempts``: all that are under way."""
        self._loop, self._bus, self._subscriptions, self._attempts = loop, bus, subscriptions, attempts
        self._leases = WorkerLeases()
        self._told: set[RequestKey] = set()
        """Attempts that the supervisor knows of."""
        self._looking = False

    def lend(self, message: IssueLease, *, open_for: bool) -> None:
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
        offer = LeaseTerms(message.lease, message.slots, message.name, message.endpoint, message.model)
        event = Event(*first, 0, EventKind.LEASE_ISSUED, 0, envelope.pack_payload(offer))
        if not (
            open_for and self._subscriptions.is_subscribed(message.gateway) and self._publish(message.gateway, event)
        ):
            self.end(message.gateway, message.lease)
        elif not self._looking:
            self._looking = True
            self._loop.call_later(LEASE_CHECK_INTERVAL_S, self._look)

    def end(self, gateway: str, number: int) -> None:
        """End a lease, and say what still runs under it."""
        if not self._leases.end(gateway, number):
            return
        runs = [_used(attempt.run) for attempt in self._under(gateway, number)]
        self._told.difference_update(RequestKey(gateway, run.number, run.attempt) for run in runs)
        self._bus.send(LeaseEnded(gateway, number, runs))
        self._publish(gateway, Event(0, 0, 0, EventKind.LEASE_ENDED, number))

    def __bool__(self) -> bool:
        """Return whether anything is lent."""
        return bool(self._leases)

    def take(self, run: Run) -> bool:
        """Return whether a gateway's own run may begin; if its lease is over, it is told so again."""
        if self._leases.take(run.gateway, run.lease, run.weight, self._loop.now()):
            return True
        if not self.holds(run):
            self._publish(run.gateway, Event(0, 0, 0, EventKind.LEASE_ENDED, run.lease))
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
            self._publish(lease.gateway, Event(0, 0, 0, EventKind.LEASE_ENDED, lease.number))
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
            self._loop.call_later(LEASE_CHECK_INTERVAL_S, self._look)

    def _tell(self, lease: WorkerLease) -> None:
        """Tell the supervisor what runs for longer than a look, so that whoever asks it hears the truth."""
        news = [attempt for attempt in self._under(lease.gateway, lease.number) if attempt.key not in self._told]
        if news:
            self._told.update(attempt.key for attempt in news)
            self._bus.send(LeaseUsed(lease.gateway, lease.number, [_used(attempt.run) for attempt in news]))

    def _under(self, gateway: str, number: int) -> list[Attempt]:
        return [each for each in self._attempts.values() if each.run.lease == number and each.run.gateway == gateway]

    def _publish(self, gateway: str, event: Event) -> bool:
        return self._bus.publish(topic(gateway), pack_batch([event]))


def _used(run: Run) -> LeasedAttempt:
    return LeasedAttempt(run.number, run.attempt, run.weight)
