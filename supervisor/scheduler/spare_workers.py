"""Worker processes without a model: how many there are, how long one may take to start, and when one leaves. Pure.

A worker is started before its first model is requested, because a new process takes a second or more. One that does not
report (Hello) in time is replaced, so that no load waits for it. One that is no longer needed is stopped.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from msgspec import structs

from protocol import VERSION
from protocol.failures import Code, Failure
from protocol.models.nodes import HEAD
from protocol.worker_states import WorkerState
from supervisor.scheduler.due_queue import NEVER_DUE
from supervisor.scheduler.effects import LogDecision, SpawnWorker
from supervisor.scheduler.queue import answers
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.scheduler_node import SchedulerNode
from supervisor.scheduler.state import SchedulerState

MAX_SPAWN_FAILURES: Final = 3
"""After this many worker processes in a row ended before Hello, the requests that wait for one are refused."""
SLOW_START_S: Final = 5.0
"""A worker that has not reported after this long may never do so: another one is started for the waiting load."""
SPARE_LINGER_S: Final = 5.0
"""How long a surplus spare is kept, because loads often follow each other."""


def replace_silent_workers(state: SchedulerState, now: float) -> None:
    """Kill the workers that did not report in time: stopped ones, and ones that run something else."""
    spawned = state.index.workers_in[WorkerState.SPAWNED].values()  # in the order in which they were started
    silent = itertools.takewhile(lambda worker: now - worker.spawned_at >= state.limits.hello_timeout, spawned)
    for worker in list(silent):
        state.count("hello_timeouts")
        why = f"it did not report within {state.limits.hello_timeout:g} s of its start"
        state.emit(
            LogDecision("error", "worker killed", {"worker": worker.id, **state.on_node(worker.node), "reason": why})
        )
        state.kill_worker(worker)
        spawn_failed(
            state, state.node_of(worker), Failure(Code.LOAD_FAILED, f"A worker process was killed: {why}"), now
        )


def keep_spares(state: SchedulerState, nodes: Collection[str], due: Iterable[SchedulerNode], now: float) -> None:
    """Start and stop workers until there is one for each waiting model, and each node has the wanted spares.

    ``nodes``: where other models may wait now than at the last reconcile. ``due``: the nodes to be looked at even if as many
    wait as then. No spare is started while an engine starts, because that needs the processor, nor while memory is nearly
    used up.
    """
    changed = set()
    for name in nodes:
        waiting = sum(_waits_for_worker(state, each.model, name) for each in state.reservations.on(name))
        if waiting != state.unassigned[name]:
            changed.add(name)
            state.unassigned[name] = waiting
    planned = Counter(plan.node or HEAD for plan in state.due_plans())
    changed |= {name for name in {*planned, *state.planned} if planned[name] != state.planned[name]}
    state.planned = planned
    others = [state.nodes[name] for name in changed if name in state.nodes]
    for node in state.index.nodes.with_changed([*due, *others]):
        if state.nodes.get(node.name) is node:
            _keep_spares(state, node, state.unassigned[node.name] + planned[node.name], now)
            state.index.nodes.look_again(node, _next_look(state, node, now))


def _waits_for_worker(state: SchedulerState, model: ScheduledModel, node: str) -> bool:
    """Return whether a model waits for a worker on a node."""
    if model.worker is not None or model.search.node != node or (model.name, node) in state.copies:
        return False
    return model.demanded and (model.order is not None or not model.is_lead)


def _next_look(state: SchedulerState, node: SchedulerNode, now: float) -> float:
    """Return when time alone may make something due for the spare workers of a node."""
    times = [NEVER_DUE, now + pause if (pause := node.spawn_backoff.pause(now)) else NEVER_DUE]
    if node.memory.is_short(now):
        times.append(node.memory.short_until)
    for worker in node.workers.values():
        if worker.state is WorkerState.SPARE and worker.idle_since is not None:
            times.append(worker.idle_since + SPARE_LINGER_S)
        elif worker.state is WorkerState.SPAWNED:
            times += [worker.spawned_at + SLOW_START_S, worker.spawned_at + state.limits.hello_timeout]
    return min((at for at in times if at > now), default=NEVER_DUE)


def _keep_spares(state: SchedulerState, node: SchedulerNode, unassigned: int, now: float) -> None:
    """Do that on one node, for the models that wait for a worker there."""
    workers = list(node.workers.values())
    spares = [worker for worker in workers if worker.state is WorkerState.SPARE]
    kept = 0 if node.draining else state.limits.spares
    _stop_surplus(state, spares, max(unassigned, kept), now, 0.0 if node.draining else SPARE_LINGER_S)
    if node.spawn_backoff.pause(now):
        return
    starting = sum(worker.state is WorkerState.SPAWNED and now - worker.spawned_at < SLOW_START_S for worker in workers)
    loading = any(worker.state is WorkerState.LOADING for worker in workers)
    wanted = max(unassigned, 0 if loading or node.memory.is_short(now) else kept)
    for _ in range(wanted - starting - len(spares)):
        worker_id = state.new_worker()
        state.add_worker(worker_id, now, node.name)
        state.emit(SpawnWorker(worker_id, node.name))


def _stop_surplus(state: SchedulerState, spares: list[ScheduledWorker], wanted: int, now: float, linger: float) -> None:
    """Stop the spares beyond ``wanted`` that have been idle for a while, longest idle first; on a node that drains at once."""
    for worker in spares:
        if worker.idle_since is None:
            worker.idle_since = now
    lingering = [worker for worker in spares if now - (worker.idle_since or 0.0) >= linger]
    for worker in sorted(lingering, key=lambda worker: worker.idle_since or 0.0)[: max(0, len(spares) - wanted)]:
        spares.remove(worker)
        state.stop_worker(worker, reason="it is not needed")


def stop_spares(state: SchedulerState, workers: Collection[str]) -> None:
    """Stop those of these workers that have no model: they were started with other settings."""
    for worker in [state.workers[worker_id] for worker_id in workers if worker_id in state.workers]:
        if worker.state is WorkerState.SPARE:
            state.stop_worker(worker, reason="it was started for other settings")
        elif worker.state is WorkerState.SPAWNED:
            state.kill_worker(worker)


def workers_start(node: SchedulerNode) -> None:
    """Forget earlier failures: worker processes do start there."""
    node.spawn_backoff.ready()
    node.spawn_problem = None
    node.changed()


def spawn_failed(state: SchedulerState, node: SchedulerNode, failure: Failure, now: float) -> None:
    """Pause after a worker process that never reported. If that happens repeatedly, refuse what waits for one."""
    node.spawn_backoff.load_failed(failure, now)
    node.changed()
    if node.spawn_problem is None and node.spawn_backoff.failures >= MAX_SPAWN_FAILURES:
        where = "" if node.name == HEAD else f" on node {node.name}"
        reason = f"Worker processes do not start{where}; see the log"
        node.spawn_problem = Failure(Code.LOAD_FAILED, reason, detail=failure.message)
    refusal = refusal_without_workers(state, now)
    if refusal is not None:
        for model in list(state.models.values()):
            if model.worker is None:
                answers.refuse_unserved(state, model, refusal)


def version_mismatch(state: SchedulerState, worker_id: str, installed: int, now: float) -> None:
    """Replace a worker that speaks another version of the wire protocol: lemonbus was updated under a running server."""
    reason = (
        "lemonbus was updated while this server runs: run `lemonbus upgrade`, or restart the server"
        f" (the installed version speaks protocol {installed}, the running one {VERSION})"
    )
    worker = state.workers.get(worker_id)
    node = state.nodes[worker.node if worker is not None else HEAD]
    if node.spawn_problem is None or node.spawn_problem.message != reason:
        state.emit(
            LogDecision("error", "lemonbus was updated under this server", {"peer": worker_id, "reason": reason})
        )
    if worker is None or worker.state is not WorkerState.SPAWNED:
        return
    state.count("version_mismatches")
    state.kill_worker(worker)
    node.spawn_problem = Failure(Code.RESTART_NEEDED, reason)
    spawn_failed(state, node, node.spawn_problem, now)


def refusal_without_workers(state: SchedulerState, now: float) -> Failure | None:
    """Return why a model without a worker cannot get one now, on any node; None if it can."""
    refusals = [refusal_on(node, now) for node in state.nodes.values()]
    return None if any(refusal is None for refusal in refusals) else refusals[0]


def refusal_on(node: SchedulerNode, now: float) -> Failure | None:
    """Return why a model without a worker cannot get one on a node now; None if it can."""
    pause = node.spawn_backoff.pause(now)
    if node.spawn_problem is None or not pause:
        return None
    if any(worker.state is WorkerState.SPARE for worker in node.workers.values()):
        return None
    return structs.replace(node.spawn_problem, retry_after=pause)
