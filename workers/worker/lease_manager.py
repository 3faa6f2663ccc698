"""The messages about leases: from the supervisor, to the gateways, and back to the supervisor.

Invariants:

* A gateway learns of a lease only after this worker has recorded it.
* Each lease that was issued ends with one `LeaseEnded`, which names every attempt that still runs under it, or with
  the engine.
"""

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
"""How often to look for unused leases, and for attempts that the supervisor does not know of."""


class WorkerLeaseManager:
    """The leases of one worker, and the messages about them."""

    def __init__(
        self, loop: Loop, bus: WorkerBus, subscriptions: Subscriptions, attempts: Mapping[RequestKey, Attempt]
    ) -> None:
        """``attempts``: all that have not ended."""
        self._loop, self._bus, self._subscriptions, self._attempts = loop, bus, subscriptions, attempts
        self._leases = WorkerLeases()
        self._reported: set[RequestKey] = set()
        """Attempts under leases that the supervisor knows of."""
        self._check_pending = False

    def issue(self, message: IssueLease, *, accepts: bool) -> None:
        """Record a lease and tell its gateway.

        If the gateway cannot be told, or the worker ``accepts`` no requests, the lease ends at once.
        """
        now = self._loop.now()
        if not self._leases.issue(message, now):
            return
        attempt = self._attempts.get(RequestKey(message.gateway, message.number, message.attempt))
        first = 0, 0
        if attempt is not None:
            self._leases.use(message.gateway, message.lease, message.weight, now)
            attempt.run = msgspec.structs.replace(attempt.run, lease=message.lease, weight=message.weight)
            self._reported.add(attempt.key)
            first = message.number, message.attempt
        terms = LeaseTerms(message.lease, message.slots, message.name, message.endpoint, message.model)
        event = Event(*first, 0, EventKind.LEASE_ISSUED, 0, envelope.pack_payload(terms))
        subscribed = self._subscriptions.is_subscribed(message.gateway)
        if not (accepts and subscribed and self._publish(message.gateway, event)):
            self.end(message.gateway, message.lease)
        elif not self._check_pending:
            self._check_later()

    def end(self, gateway: str, number: int) -> None:
        """End a lease, and report what still runs under it. A lease that has ended is ignored."""
        if not self._leases.end(gateway, number):
            return
        runs = [_leased_attempt(attempt.run) for attempt in self._attempts_under(gateway, number)]
        self._reported.difference_update(RequestKey(gateway, run.number, run.attempt) for run in runs)
        self._bus.send(LeaseEnded(gateway, number, runs))
        self._publish(gateway, Event(0, 0, 0, EventKind.LEASE_ENDED, number))

    def __bool__(self) -> bool:
        """Return whether there is a lease."""
        return bool(self._leases)

    def use(self, run: Run) -> bool:
        """Return whether a gateway's own request may begin; if its lease has ended, the gateway is told again."""
        if self._leases.use(run.gateway, run.lease, run.weight, self._loop.now()):
            return True
        if not self.stands(run):
            self._publish(run.gateway, Event(0, 0, 0, EventKind.LEASE_ENDED, run.lease))
        return False

    def stands(self, run: Run) -> bool:
        """Return whether the lease that a request began under has not ended."""
        return self._leases.stands(run.gateway, run.lease)

    def release(self, run: Run) -> None:
        """Take note that a request under a lease has ended."""
        self._leases.release(run.gateway, run.lease, run.weight, self._loop.now())
        self._reported.discard(RequestKey(run.gateway, run.number, run.attempt))

    def clear(self) -> None:
        """Forget all leases: the engine is gone, and the supervisor knows that they ended with it."""
        for lease in self._leases.clear():
            self._publish(lease.gateway, Event(0, 0, 0, EventKind.LEASE_ENDED, lease.number))
        self._reported.clear()

    def gateway_left(self, gateway: str) -> None:
        """End the leases of a gateway that is gone."""
        for lease in self._leases.all():
            if lease.gateway == gateway:
                self.end(gateway, lease.number)

    def end_all(self) -> None:
        """End all leases; what runs under them goes on."""
        for lease in self._leases.all():
            self.end(lease.gateway, lease.number)

    def _check_later(self) -> None:
        self._check_pending = True
        self._loop.call_later(LEASE_CHECK_INTERVAL_S, self._check)

    def _check(self) -> None:
        self._check_pending = False
        for lease in self._leases.unused(self._loop.now(), {key.gateway for key in self._attempts}):
            self.end(lease.gateway, lease.number)
        for lease in self._leases.all():
            self._report(lease)
        if self._leases:
            self._check_later()

    def _report(self, lease: WorkerLease) -> None:
        """Tell the supervisor of attempts that have run since before the last check, so that its health report is right."""
        running = self._attempts_under(lease.gateway, lease.number)
        unreported = [attempt for attempt in running if attempt.key not in self._reported]
        if unreported:
            self._reported.update(attempt.key for attempt in unreported)
            runs = [_leased_attempt(attempt.run) for attempt in unreported]
            self._bus.send(LeaseUsed(lease.gateway, lease.number, runs))

    def _attempts_under(self, gateway: str, number: int) -> list[Attempt]:
        return [each for each in self._attempts.values() if each.run.lease == number and each.run.gateway == gateway]

    def _publish(self, gateway: str, event: Event) -> bool:
        return self._bus.publish(topic(gateway), pack_batch([event]))


def _leased_attempt(run: Run) -> LeasedAttempt:
    return LeasedAttempt(run.number, run.attempt, run.weight)
