"""The scheduler: events in, effects out. No clock but the one handed in, no I/O.

Its decisions, in the order in which they are tried for a request:

1. the house is closing → refuse (503 draining)
2. the model's last load failed a moment ago, or its breaker is open → refuse (503, reason, Retry-After)
3. its queue is full, in requests or bytes → refuse (503 overloaded, Retry-After from measured service time)
4. otherwise it waits in its model's queue, in the order of arrival, and :mod:`supervisor.scheduler.reconcile` goes on:
   ready with free slots → grant; not on this machine → fetch; not loaded → check, make room, load.

Whatever happens, :meth:`Scheduler.effects` hands out what is to be done, once.  The events of gateways are in
:mod:`supervisor.scheduler.gateway_events`, those of workers in :mod:`supervisor.scheduler.worker_events`, the state in :mod:`supervisor.scheduler.state`.
"""

from __future__ import annotations

from supervisor.scheduler import reconcile
from supervisor.scheduler.gateway_events import GatewayEventHandlers
from supervisor.scheduler.worker_events import WorkerEventHandlers


class Scheduler(GatewayEventHandlers, WorkerEventHandlers):
    """All events in, :meth:`go_on` (after requests, their ends and cancels :meth:`go_on_unless_settled`), effects out."""

    def reconcile_unless_settled(self, now: float) -> None:
        """Like :meth:`go_on`, but free while nobody waits and nothing moves. Not for other events: they move things."""
        if not self.settled:
            reconcile.reconcile(self, now)

    def reconcile(self, now: float) -> None:
        """Do all that the present state allows; to be called after every event and every now and then."""
        reconcile.reconcile(self, now)
