"""The scheduler: events in, effects out. The clock is an argument, and there is no I/O.

What happens to a request, in the order of the decisions:

1. the server is closing → refuse (503 draining)
2. the model's last load failed a moment ago, or its breaker is open → refuse (503, reason, Retry-After)
3. its queue is full, in requests of the same key or in bytes → refuse (503 overloaded, Retry-After from measured service time)
4. otherwise it waits in its model's queue, and :mod:`supervisor.scheduler.reconcile` goes on. Within a key it is first come,
   first served; between keys :mod:`supervisor.scheduler.queue.fair_share` decides which is next:
   ready with free slots → grant; not on this machine → fetch; not loaded → check, evict others, load.
"""

from __future__ import annotations

from collections.abc import Callable

from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.scheduler import gateway_events, reconcile, spare_workers, worker_deaths, worker_events
from supervisor.scheduler.inputs import SchedulerLimits
from supervisor.scheduler.policy import PolicySource
from supervisor.scheduler.recovery import recovery_events
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.view import SchedulerView


class Scheduler(SchedulerState):
    """The state, with all events as methods. After an event, call :meth:`reconcile`, then carry out :meth:`effects`.

    After requests, their ends and cancels, :meth:`reconcile_unless_settled` suffices. Others use only what is listed here,
    and ask :attr:`view`; the rest is the state of the scheduler's own functions.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        new_worker: Callable[[], str],
        metrics: ServerMetrics | None = None,
        policies: PolicySource | None = None,
    ) -> None:
        """See :class:`~supervisor.scheduler.state.SchedulerState`."""
        super().__init__(limits, new_worker, metrics, policies)
        self.view = SchedulerView(self)
        """What it knows, for others."""

    request_submitted = gateway_events.request_submitted
    state_read = gateway_events.state_read
    request_cancelled = gateway_events.request_cancelled
    load_requested = gateway_events.load_requested
    unload_requested = gateway_events.unload_requested
    overrides_requested = gateway_events.overrides_requested
    call_abandoned = gateway_events.call_abandoned
    model_deleted = gateway_events.model_deleted
    requested_options = gateway_events.requested_options
    download_ended = gateway_events.download_ended
    gateway_gone = gateway_events.gateway_gone
    close = gateway_events.close
    refuse = SchedulerState.refuse
    forget_use = SchedulerState.forget_use
    count = SchedulerState.count

    recovered = recovery_events.recovered
    worker_reconnected = recovery_events.worker_reconnected

    worker_reported = worker_events.worker_reported
    version_mismatch = spare_workers.version_mismatch
    stop_spares = spare_workers.stop_spares
    model_checked = worker_events.model_checked
    engine_ready = worker_events.engine_ready
    load_failed = worker_events.load_failed
    attempt_ended = worker_events.attempt_ended
    attempt_progressed = worker_events.attempt_progressed
    attempt_abandoned = worker_events.attempt_abandoned
    engine_died = worker_deaths.engine_died
    worker_gone = worker_deaths.worker_gone
    stop_all_workers = worker_events.stop_all_workers

    reconcile_unless_settled = reconcile.reconcile_unless_settled
    reconcile = reconcile.reconcile
    effects = SchedulerState.effects
