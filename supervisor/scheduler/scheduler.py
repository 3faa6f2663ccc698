"""The scheduler: events in, effects out. The clock is an argument, and there is no I/O.

What happens to a request, in the order of the decisions:

1. the server is closing → refuse (503 draining), unless it is a later piece of a long list and the engine still serves
2. the model's last load failed a moment ago, or its breaker is open → refuse (503, reason, Retry-After)
3. its queue is full, in requests of the same key or in bytes → refuse (503 overloaded, Retry-After from measured service time)
4. otherwise it waits in its model's queue, and :mod:`supervisor.scheduler.reconcile` goes on. Within a key it is first come,
   first served; between keys :mod:`supervisor.scheduler.queue.fair_share` decides which is next:
   ready with free slots → grant; not on this machine → fetch; not loaded → check, evict others, load.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.engines import EngineReady, LoadProgressed
from protocol.messages.models import PolicyOverrides
from protocol.messages.work import AttemptProgress, SubmitRequest
from protocol.models.memory import Capacity, MemoryEstimate
from protocol.models.nodes import NodeFacts
from protocol.models.recipes import ModelSpec
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.scheduler import client_events, reconcile, spare_workers, worker_deaths, worker_events
from supervisor.scheduler.effects import Effect
from supervisor.scheduler.inputs import FileLocations, ModelTarget, SchedulerLimits
from supervisor.scheduler.loads import dry_runs
from supervisor.scheduler.memory import memory_events, pressure
from supervisor.scheduler.nodes import node_events
from supervisor.scheduler.policy import PolicySource
from supervisor.scheduler.queue import batches
from supervisor.scheduler.recovery import recovery_events
from supervisor.scheduler.recovery.recovery_events import RunningWorker, World
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import AttemptView


class Scheduler:
    """All events. After an event, call :meth:`reconcile`, then carry out :meth:`effects`.

    After requests, their ends and cancels, this is unnecessary if the view says ``settled``. What the scheduler knows is
    asked of :attr:`view`. ``now``: the monotonic time in seconds.
    """

    def __init__(
        self,
        limits: SchedulerLimits,
        new_worker: Callable[[], str],
        metrics: ServerMetrics | None = None,
        policies: PolicySource | None = None,
        files: FileLocations | None = None,
    ) -> None:
        """``new_worker`` names the next worker process; ``metrics`` count what the scheduler does. ``files``: where models are; None: each node has all."""
        self._state = SchedulerState(limits, new_worker, metrics, policies, files)
        self.view = SchedulerView(self._state)

    # Decisions

    def memory_read(
        self, node: str, capacities: Sequence[Capacity], held: Mapping[str, Mapping[str, int]], now: float
    ) -> None:
        """The memory of a node was read. ``held``: worker → bytes that its engine holds, by place.

        To be called before :meth:`reconcile` for the nodes that the view's ``wants_memory`` names. Figures from before the
        last of the view's ``memory_changes`` are not to be told.
        """
        memory_events.memory_read(self._state, node, capacities, held, now)

    def reconcile(self, now: float) -> None:
        """Do all that can be done now."""
        reconcile.reconcile(self._state, now)

    def effects(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        return self._state.effects()

    # Requests

    def request_submitted(
        self, key: RequestKey, request: SubmitRequest, payload: bytes, target: ModelTarget, now: float
    ) -> None:
        """A gateway wants a request run."""
        client_events.request_submitted(self._state, key, request, payload, target=target, now=now)

    def batch_refusal(self, request: SubmitRequest, model: str) -> Failure | None:
        """Return why a line of a batch has to wait, None if it may be submitted. ``model``: the registered name."""
        return batches.refusal(self._state, model, request)

    def state_read(self, key: RequestKey, request: SubmitRequest, payload: bytes, name: str) -> None:
        """A gateway wants to read the state of the engine of a loaded model, given by its registered name."""
        client_events.state_read(self._state, key, request, payload, name)

    def request_cancelled(self, key: RequestKey, reason: str) -> None:
        """The client is gone. A grant ends when the worker reports the attempt's end, not now."""
        client_events.request_cancelled(self._state, key, reason)

    def expect_no_piece_after(self, gateway: str, number: int) -> None:
        """The piece after this one of a long list has come, or never will."""
        client_events.expect_no_piece_after(self._state, gateway, number)

    def refuse(self, key: RequestKey, failure: Failure) -> None:
        """End an attempt (or a call, with attempt 0) before it reached a worker."""
        self._state.refuse(key, failure)

    def attempt_ended(
        self,
        key: RequestKey,
        code: str,
        now: float,
        tokens: int = 0,
        output_tokens: int = 0,
        ended_at: float | None = None,
    ) -> AttemptView | None:
        """The engine has stopped working on an attempt. Returns it if it held a grant.

        ``tokens``: of prompt and answer. ``output_tokens``: of the answer alone. ``ended_at``: when it stopped, if not now.
        """
        return worker_events.attempt_ended(
            self._state, key, code, now, tokens=tokens, output_tokens=output_tokens, ended_at=ended_at
        )

    def attempt_progressed(self, worker: str, progress: AttemptProgress) -> None:
        """An engine reports how far it is with an attempt."""
        worker_events.attempt_progressed(self._state, worker, progress)

    def attempt_abandoned(self, worker: str, key: RequestKey) -> None:
        """An engine still works on an attempt, a while after its client has left."""
        worker_events.attempt_abandoned(self._state, worker, key)

    def count(self, what: str, number: int) -> None:
        """Count something that an operator may ask about."""
        self._state.count(what, number)

    # Calls about models

    def load_requested(
        self, peer: str, number: int, target: ModelTarget, now: float, *, repeated: bool = False
    ) -> None:
        """A caller wants a model loaded with these options. ``repeated``: after a failure, which still counts."""
        client_events.load_requested(self._state, peer, number, target, now, repeated=repeated)

    def plan_requested(self, peer: str, number: int, spec: ModelSpec) -> None:
        """A caller wants to know what a load of this model would do; answered with a :class:`~protocol.messages.models.LoadPlan`."""
        dry_runs.plan_requested(self._state, peer, number, spec)

    def unload_requested(self, peer: str, number: int, name: str) -> bool:
        """A caller wants a model unloaded; return False if it is neither loaded nor about to be."""
        return client_events.unload_requested(self._state, peer, number, name)

    def overrides_requested(self, peer: str, number: int, name: str, asked: PolicyOverrides) -> bool:
        """A caller wants a loaded model to be treated otherwise; return False if it is neither loaded nor about to be."""
        return client_events.overrides_requested(self._state, peer, number, name, asked)

    def call_abandoned(self, peer: str, number: int) -> None:
        """A caller hung up: what it began goes on, but is not answered."""
        dry_runs.forget_plans(self._state, peer, number)
        client_events.call_abandoned(self._state, peer, number)

    def download_ended(self, name: str, spec: ModelSpec | None, failure: Failure | None, now: float) -> None:
        """A download succeeded (``spec``) or failed."""
        client_events.download_ended(self._state, name, spec, failure, now)

    def model_deleted(self, name: str) -> None:
        """The files of a model are about to be removed: nothing waits for it any more, and it does not come back."""
        client_events.model_deleted(self._state, name)

    def forget_use(self, name: str) -> None:
        """Forget that a model was used: another one may get its name."""
        self._state.forget_use(name)

    # Workers and their engines

    def worker_reported(self, worker: str) -> None:
        """A worker process has said Hello; it has no model yet."""
        worker_events.worker_reported(self._state, worker)

    def version_mismatch(self, worker: str, installed: int, now: float) -> None:
        """A worker speaks another version of the wire protocol: lemonbus was updated under a running server."""
        spare_workers.version_mismatch(self._state, worker, installed, now)

    def model_checked(self, worker: str, estimate: MemoryEstimate) -> None:
        """A worker finds nothing against loading its model, which would need this memory."""
        dry_runs.model_checked(self._state, worker, estimate)
        worker_events.model_checked(self._state, worker, estimate)

    def load_progressed(self, worker: str, progress: LoadProgressed) -> None:
        """A worker says how far the engine is that it has started."""
        worker_events.load_progressed(self._state, worker, progress)

    def engine_ready(self, worker: str, facts: EngineReady, now: float) -> None:
        """The engine of a model answers."""
        worker_events.engine_ready(self._state, worker, facts, now)

    def load_failed(self, worker: str, failure: Failure, now: float) -> None:
        """A check or the start of an engine failed: everything that waits is refused with the reason."""
        dry_runs.check_failed(self._state, worker, failure)
        worker_events.load_failed(self._state, worker, failure, now)

    def engine_died(
        self,
        worker: str,
        failure: Failure,
        now: float,
        causes: Sequence[RequestKey] = (),
        *,
        killed: bool = False,
        worked: bool = False,
    ) -> None:
        """The engine of a ready model is gone. ``causes``, ``killed``: see :class:`~protocol.messages.engines.EngineDied`.

        ``worked``: whether it worked on requests.
        """
        worker_deaths.engine_died(self._state, worker, failure, now, causes, killed=killed, worked=worked)

    def worker_gone(self, worker: str, failure: Failure, now: float) -> None:
        """A worker process is gone, whatever it was doing."""
        dry_runs.worker_gone(self._state, worker, failure)
        worker_deaths.worker_gone(self._state, worker, failure, now)

    def memory_short(self, node: str, host: Capacity, figures: Mapping[str, Any], now: float) -> None:
        """A node, or a control group above our processes there, is short of memory; ``figures`` are for the log."""
        pressure.memory_short(self._state, node, host, figures, now)

    def stop_spares(self, workers: Collection[str]) -> None:
        """Those of these workers that have no model are to stop: they were started with other settings."""
        spare_workers.stop_spares(self._state, workers)

    # Nodes

    def node_joined(self, facts: NodeFacts, now: float) -> None:
        """A node is in the server, or what it says of itself has changed.

        The head is known from the beginning, and other nodes that an earlier supervisor had join before :meth:`recovered`.
        """
        node_events.node_joined(self._state, facts, now)

    def node_drains(self, name: str, draining: bool) -> None:
        """The models of a node are to leave it; or not, and others may be loaded there again."""
        node_events.node_drains(self._state, name, draining)

    def node_left(self, name: str, failure: Failure, now: float, *, may_return: bool = False) -> None:
        """A node is gone, and everything on it. The ends of its workers may be told before. ``may_return``: it was not told to leave."""
        node_events.node_left(self._state, name, failure, now, may_return=may_return)

    def files_copied(self, model: str, node: str, done: int, total: int) -> None:
        """This much of what a :class:`~supervisor.scheduler.effects.FetchFiles` asked for is on the node, in bytes."""
        node_events.files_copied(self._state, model, node, done, total)

    def files_fetched(self, model: str, node: str, failure: Failure | None, now: float) -> None:
        """What a :class:`~supervisor.scheduler.effects.FetchFiles` asked for has ended: the node has the files, or not."""
        node_events.files_fetched(self._state, model, node, failure, now)

    # The beginning and the end

    def recovered(self, world: World, now: float) -> None:
        """Take over what runs. To be called once, before all other events."""
        recovery_events.recovered(self._state, world, now)

    def worker_reconnected(self, running: RunningWorker, known: Collection[RequestKey], now: float) -> bool:
        """A worker has begun a new connection: messages in either direction on the last one may be lost.

        ``known``: the attempts that it has or has ended. Returns False if it must be ended, because a step of a load is
        lost.
        """
        return recovery_events.worker_reconnected(self._state, running, known, now)

    def gateway_gone(self, gateway: str) -> None:
        """A gateway is gone: its waiting requests are dropped, and its running ones are cancelled."""
        dry_runs.forget_plans(self._state, gateway)
        client_events.gateway_gone(self._state, gateway)

    def close(self) -> None:
        """Accept nothing new and refuse what waits; what runs goes on."""
        client_events.close(self._state)

    def stop_all_workers(self) -> None:
        """Stop every worker, whatever it does: the server ends."""
        worker_events.stop_all_workers(self._state)
