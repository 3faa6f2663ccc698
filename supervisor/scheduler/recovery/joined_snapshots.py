"""Joins what the peers of a dead supervisor report into what its successor must know and do. Pure.

Each process only reports its own work, at a moment of its own. Only one side knows of a message that was on its way to
or from the dead supervisor.

==============================  =====================================================================================
lost with the supervisor        how it shows, and what follows
==============================  =====================================================================================
``SubmitRequest``               no worker has the attempt: it is submitted again and waits
``Run``                         as before; or its gateway knows the worker, from ``Granted``: it is refused (``returned``)
``Granted``                     a worker has the attempt, its gateway submits it again: it gets ``Granted``
``AttemptEnded``                the worker has it among those that ended last: nothing, or ``Granted`` as before
``Cancel``                      a worker has the attempt, its gateway does not: it is cancelled
``Refused``                     no worker has the attempt: it is submitted again and decided anew
==============================  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocol.ids import RequestKey
from protocol.messages.recovery import GatewaySnapshot, RequestSnapshot, WorkerSnapshot
from protocol.models.nodes import HEAD
from protocol.worker_states import WorkerState
from supervisor.scheduler.recovery.recovery_events import AttemptAt, RunningAttempt, RunningWorker, World


def is_consistent(snapshot: WorkerSnapshot) -> bool:
    """Return whether a worker can be taken over: if it says that it has a model, it must say which."""
    match snapshot.state:
        case WorkerState.SPARE:
            return not snapshot.attempts
        case WorkerState.READY:
            return snapshot.spec is not None and snapshot.facts is not None
        case WorkerState.LOADING:
            return snapshot.spec is not None
        case WorkerState.ENGINE_LOST:
            return snapshot.spec is not None and not snapshot.attempts
        case WorkerState.LEAVING:
            return True
        case _:  # no worker knows this of itself
            return False


def join_snapshots(
    workers: Mapping[str, WorkerSnapshot],
    gateways: Mapping[str, GatewaySnapshot],
    arrivals: Mapping[str, float],
    starting: Sequence[str] = (),
    nodes: Mapping[str, str] = {},
) -> World:
    """Return the world of these peers. Any other process has ended, or is about to be killed.

    ``arrivals``: peer → when its snapshot arrived, by this process's clock. ``starting``: workers that have not said
    Hello to any supervisor. ``nodes``: worker → node, for workers on other nodes than the head.
    """
    waiting = {
        RequestKey(gateway, request.number, request.attempt): request
        for gateway, snapshot in gateways.items()
        for request in snapshot.requests
    }
    running = {
        RequestKey(each.gateway, each.number, each.attempt): worker
        for worker, snapshot in workers.items()
        for each in snapshot.attempts
    }
    ended = {each.key: worker for worker, snapshot in workers.items() for each in snapshot.ended}
    return World(
        [
            _running_worker(worker, snapshot, arrivals, waiting)._replace(node=nodes.get(worker, HEAD))
            for worker, snapshot in workers.items()
        ],
        starting,
        nodes,
        unwanted=[AttemptAt(key, worker) for key, worker in running.items() if key not in waiting],
        returned=[
            AttemptAt(key, request.worker)
            for key, request in sorted(waiting.items(), key=lambda item: arrivals[item[0].gateway] - item[1].age)
            if request.worker in workers and request.worker not in (running.get(key), ended.get(key))
        ],
        ended={key: worker for key, worker in ended.items() if key in waiting and not waiting[key].worker},
    )


def known_attempts(workers: Mapping[str, WorkerSnapshot]) -> set[RequestKey]:
    """Return the attempts that workers hold, or have just ended."""
    running = {RequestKey(each.gateway, each.number, each.attempt) for of in workers.values() for each in of.attempts}
    return running | {each.key for of in workers.values() for each in of.ended}


def to_be_submitted(gateways: Mapping[str, GatewaySnapshot]) -> set[RequestKey]:
    """Return the attempts for which a ``SubmitRequest`` follows their gateway's Hello."""
    return {
        RequestKey(gateway, request.number, request.attempt)
        for gateway, snapshot in gateways.items()
        for request in snapshot.requests
        if not request.worker
    }


def _running_worker(
    worker: str,
    snapshot: WorkerSnapshot,
    arrivals: Mapping[str, float],
    waiting: Mapping[RequestKey, RequestSnapshot],
) -> RunningWorker:
    attempts, arrived = [], arrivals[worker]
    for each in snapshot.attempts:
        key = RequestKey(each.gateway, each.number, each.attempt)
        request = waiting.get(key)
        attempt = RunningAttempt(key, each.weight, arrived - each.age, abandoned=each.abandoned)
        if request is not None:
            since = arrivals[key.gateway] - request.age
            attempt = attempt._replace(caller=request.caller, more=request.more, facts=request, since=since)
        attempts.append(attempt)
    return RunningWorker(
        worker=worker,
        state=snapshot.state,
        spec=snapshot.spec,
        facts=snapshot.facts,
        attempts=attempts,
        last_use=0.0 if snapshot.last_use is None else arrived - snapshot.last_use,
        remembered=snapshot.remembered,
        context=snapshot.context,
        backend=snapshot.backend,
        device=snapshot.device,
        need=snapshot.need,
        load_began=arrived - snapshot.load_age if snapshot.state is WorkerState.LOADING else None,
        progress=snapshot.progress,
        replica=snapshot.replica,
        ready_at=None if snapshot.ready_age is None else arrived - snapshot.ready_age,
    )
