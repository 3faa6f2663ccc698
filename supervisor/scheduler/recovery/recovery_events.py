"""The one event with which a new supervisor's scheduler begins: what workers and gateways report of their work. Pure.

A supervisor that dies takes only decisions with it. Workers report what is loaded and what runs
(:mod:`supervisor.scheduler.recovery.joined_snapshots` joins their reports), and it is restored here. Gateways submit again
what waited, and repeat their calls: the :class:`World` has none of that. Past failures, positions of requests that were
about to be retried, and shares between keys are lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.engines import EngineReady, LoadProgressed
from protocol.messages.models import PolicyOverrides
from protocol.messages.peers import Shutdown
from protocol.messages.work import Cancel
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.worker_states import KNOWN_TO_WORKER, WorkerEvent, WorkerState
from supervisor.scheduler import known_models, worker_deaths, worker_events
from supervisor.scheduler.effects import LogDecision, SendMessage
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.queue.work_items import ShownRequest, SlotGrant
from supervisor.scheduler.recovery import taken_over_models
from supervisor.scheduler.replicas.replica_set import replica_key
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState

ENGINE_LOST: Final = "its engine died while no supervisor ran"
_KEPT_BY_A_WORKER: Final = frozenset({WorkerState.SPAWNED, WorkerState.SPARE, WorkerState.LOADING})
"""States without an engine that answers, in which a broken connection loses nothing if worker and supervisor agree."""


class RunningAttempt(NamedTuple):
    """An attempt that a worker's engine works on.

    ``caller``, ``facts``: also None if its gateway is gone. ``more``: as in ``SubmitRequest``. ``since``: when it arrived.
    """

    key: RequestKey
    weight: int
    began: float
    caller: Caller | None = None
    abandoned: bool = False
    more: bool = False
    facts: ShownRequest | None = None
    since: float = 0.0


class RunningWorker(NamedTuple):
    """A worker process that goes on. ``spec``: of its model, if it has one. ``facts``: of a ready engine."""

    worker: str
    state: WorkerState
    """As its snapshot says."""
    spec: ModelSpec | None = None
    facts: EngineReady | None = None
    attempts: Sequence[RunningAttempt] = ()
    last_use: float = 0.0
    """Monotonic seconds; 0: never."""
    remembered: PolicyOverrides = PolicyOverrides()
    context: int = 0
    need: Mapping[str, int] = {}
    """The memory that its model counts with, in bytes by place."""
    load_began: float | None = None
    """Since when its model is being loaded, in monotonic seconds; None: it is not."""
    progress: LoadProgressed | None = None
    """What it reported of the load last."""
    ready_at: float | None = None
    """Since when its engine answers; None if it does not."""
    replica: int = 1
    """The number of its engine, of those of its model."""
    node: str = HEAD
    backend: str = ""
    device: str = ""
    """As in ``StartEngine``."""


class AttemptAt(NamedTuple):
    """An attempt, and its present or past worker."""

    key: RequestKey
    worker: str


class World(NamedTuple):
    """What was there when a new supervisor took over."""

    workers: Sequence[RunningWorker] = ()
    starting: Sequence[str] = ()
    """Worker processes that have not said Hello to any supervisor yet."""
    nodes: Mapping[str, str] = {}
    """Worker → node, for workers on other nodes than the head. Those nodes have joined."""
    unwanted: Sequence[AttemptAt] = ()
    """Attempts that a worker has but no gateway waits for."""
    returned: Sequence[AttemptAt] = ()
    """Attempts that a gateway believes to be at a worker that never read of them."""
    ended: Mapping[RequestKey, str] = {}
    """Attempt → worker that has ended it, for the latest ended ones."""


def recovered(state: SchedulerState, world: World, now: float) -> None:
    """Take over what runs. To be called once, before all other events."""
    for worker_id in world.starting:
        state.add_worker(worker_id, now, world.nodes.get(worker_id, HEAD))
    for running in sorted(world.workers, key=lambda each: each.state is WorkerState.LEAVING):
        _take_over(state, running, now)
    for of in state.replica_sets.values():
        of.scaling.take_over(sum(each.worker is not None for each in of.replicas))
    _restore_grants(state, world)
    for key, worker_id in world.returned:
        # Its retry is served before anything that was never granted.
        model = _model_of(state, worker_id)
        if model is not None:
            model.expect_return(key, next(state.order))
        reason = "The supervisor died before the worker had read the request"
        state.refuse(key, Failure(Code.RETURNED, reason, model=model.name if model else ""))
    for key, worker_id in world.unwanted:
        state.emit(SendMessage(worker_id, Cancel(*key, "no client waits for it")))
    state.ended_before = dict(world.ended)
    for running in world.workers:
        if running.state is WorkerState.ENGINE_LOST and state.workers[running.worker].serves:
            worker_deaths.engine_died(state, running.worker, Failure(Code.BACKEND_DIED, ENGINE_LOST), now)


def worker_reconnected(
    state: SchedulerState, running: RunningWorker, known: Collection[RequestKey], now: float
) -> bool:
    """A worker has begun a new connection: messages in either direction on the last one may be lost.

    ``known``: the attempts that it has or has ended. Returns False if it must be ended, because a step of a load is
    lost.
    """
    worker = state.workers[running.worker]
    reported, serves = running.state, worker.serves
    if worker.state is WorkerState.LEAVING:
        state.emit(SendMessage(running.worker, Shutdown(0.0)))
        return True
    if worker.state is WorkerState.LOADING and reported is WorkerState.READY and running.facts is not None:
        worker_events.engine_ready(state, running.worker, running.facts, now)
        return True
    if not serves:
        return worker.state in _KEPT_BY_A_WORKER and reported is KNOWN_TO_WORKER[worker.state]
    if reported is not WorkerState.READY or worker.model is None:
        return False
    has = {attempt.key for attempt in running.attempts}
    for key in worker.model.grants.keys() - has:
        worker_events.attempt_ended(state, key, "" if key in known else Code.RETURNED, now)
    for key in has - worker.model.grants.keys():
        state.emit(SendMessage(running.worker, Cancel(*key, "it has no slot any more")))
    return True


def _take_over(state: SchedulerState, running: RunningWorker, now: float) -> None:
    worker = state.add_worker(running.worker, now, running.node)
    spec, leaves = running.spec, running.state is WorkerState.LEAVING
    if (
        spec is None
        or running.state is WorkerState.SPARE
        or (leaves and replica_key(spec.name, running.replica) in state.models)
    ):
        worker.transition(WorkerEvent.HELLO)
        if leaves:
            state.expect_end(worker)
        return
    model = known_models.find_or_add_replica(state, ModelTarget(spec.name, spec.type, spec), running.replica)
    if model.worker is not None:
        # Never seen: a model gets another worker when its last one no longer has an engine.
        fields = {"model": spec.name, "worker": running.worker, "other": model.worker.id}
        state.emit(LogDecision("error", "worker killed, another one has its model", fields))
        state.kill_worker(worker)
        return
    worker.context, worker.need, worker.backend = running.context, running.need, running.backend
    worker.device = running.device
    taken_over_models.take_over(state, model, worker, running.state, running.facts)
    taken_over_models.restore_remembered(model, worker, running.remembered)
    model.load_began, worker.progress, worker.ready_at = running.load_began, running.progress, running.ready_at
    model.last_use = running.last_use or now


def _restore_grants(state: SchedulerState, world: World) -> None:
    """Give each attempt its slots, in the order in which they were granted."""
    attempts = [(each.began, each, running.worker) for running in world.workers for each in running.attempts]
    for _, attempt, worker_id in sorted(attempts, key=lambda each: each[0]):
        model = _model_of(state, worker_id)
        if model is not None:
            grant = SlotGrant(
                weight=attempt.weight,
                usual_weight=attempt.weight,
                began=attempt.began,
                order=next(state.order),
                caller=attempt.caller,
                more=attempt.more,
                facts=attempt.facts,
                since=attempt.since or attempt.began,
            )
            model.add_grant(attempt.key, grant)
            if attempt.abandoned:
                model.abandoned.add(attempt.key)


def _model_of(state: SchedulerState, worker_id: str) -> ScheduledModel | None:
    worker = state.workers.get(worker_id)
    return worker.model if worker is not None else None
