"""Events of workers: a worker reports, a model was checked or is ready, an attempt ended. `worker_deaths` has the rest. Pure."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from protocol.failures import Code, Failure, failure_of_configuration
from protocol.ids import RequestKey
from protocol.messages.engines import EngineReady, LoadProgressed
from protocol.messages.work import AttemptProgress
from protocol.models.memory import MemoryEstimate
from protocol.worker_states import WorkerEvent, WorkerState
from supervisor.scheduler import idle_ttl, model_changes, spare_workers
from supervisor.scheduler.effects import LogDecision
from supervisor.scheduler.eviction import EVICTED
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.queue import answers
from supervisor.scheduler.replicas import replication
from supervisor.scheduler.scheduled_model import ScheduledModel, satisfies, with_model
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.view_values import AttemptView, attempt_view

# ---- a load ------------------------------------------------------------------------------------------------------


def worker_reported(state: SchedulerState, worker_id: str) -> None:
    """A worker process has said Hello; it has no model yet."""
    worker = state.workers[worker_id]
    if worker.state is WorkerState.SPAWNED:  # otherwise it was stopped before it could report
        worker.transition(WorkerEvent.HELLO)
        spare_workers.workers_start(state.node_of(worker))


def model_checked(state: SchedulerState, worker_id: str, estimate: MemoryEstimate) -> None:
    """A worker finds nothing against loading its model, which would need this memory."""
    worker = state.workers[worker_id]
    if worker.model is not None and worker.state is WorkerState.CHECKING:
        model_changes.finish_check(worker.model, worker, estimate)
        state.failed_checks.forget(worker.model.name)
        state.node_of(worker).memory.changed()


def load_progressed(state: SchedulerState, worker_id: str, progress: LoadProgressed) -> None:
    """A worker says how far the engine is that it has started."""
    worker = state.workers[worker_id]
    if worker.state is WorkerState.LOADING:
        worker.progress = progress


def engine_ready(state: SchedulerState, worker_id: str, facts: EngineReady, now: float) -> None:
    """The engine of a model answers."""
    worker = state.workers[worker_id]
    model = worker.model
    if worker.state is not WorkerState.LOADING or model is None:
        return
    model_changes.become_ready(state, model, worker, facts)
    state.node_of(worker).memory.changed()
    model.last_use = worker.ready_at = now
    state.count("loads")
    state.metrics.model_loaded(model.name, facts.seconds)
    where = {"worker": worker_id, **state.on_node(worker.node)}
    state.emit(LogDecision("info", "model ready", {"model": model.name, **where, **_log_fields(facts)}))
    answers.answer_loads(state, model)


def load_failed(state: SchedulerState, worker_id: str, failure: Failure, now: float) -> None:
    """A check or the start of an engine failed: everything that waits is refused with the reason."""
    worker = state.workers[worker_id]
    model = worker.model
    if model is None or worker.state not in (WorkerState.CHECKING, WorkerState.LOADING):
        return
    started = model_changes.fail_load(state, model, worker)
    _load_failed(state, model, worker_id, with_model(model, failure), now, started=started)


def memory_insufficient(state: SchedulerState, model: ScheduledModel, failure: Failure, now: float) -> None:
    """A checked model needs more memory than there is, whatever is evicted: everything that waits is refused with the reason."""
    worker_id = model.worker.id if model.worker is not None else ""
    model_changes.release_worker(state, model)
    model_changes.stop_keeping(model)
    _load_failed(state, model, worker_id, failure, now, started=False)


def _load_failed(
    state: SchedulerState, model: ScheduledModel, worker_id: str, failure: Failure, now: float, *, started: bool
) -> None:
    asked = bool(model.spec and model.spec.asked)
    of_others = failure_of_configuration(failure, model.name, temporary=asked)
    state.count("load_failures")
    state.metrics.load_failed(model.name)
    worker = state.workers.get(worker_id)
    where = state.on_node(worker.node) if worker is not None else {}
    fields: dict[str, Any] = {
        "model": model.name,
        "worker": worker_id,
        **where,
        "code": failure.code,
        "reason": failure.message,
        **({"detail": failure.detail} if failure.detail else {}),
    }
    level = "error" if failure.http_status >= 500 or not asked else "warning"
    if model.rollback_spec is not None and not state.closing and not _works_elsewhere(model):
        state.emit(LogDecision(level, "load failed, it keeps its former options", fields))
        _roll_back(state, model, failure, now)
        return
    pause = state.limits.restarts.first
    if started and not model.provisional:
        model.backoff.load_failed(failure, now)
        pause = model.backoff.pause(now)
        fields["retry_in"] = round(pause, 3)
    elif (
        (failure.http_status >= 500 or not asked)
        and of_others.http_status >= 500
        and not (model.provisional or model.replica_set.has_another(model))
    ):
        state.failed_checks.note(model.name, of_others, now)
    state.emit(LogDecision(level, "load failed", fields))
    if model.replica_set.has_another(model):
        replication.give_up(state, model, now)
        return
    _refuse_load(state, model, failure, of_others, pause)


def _works_elsewhere(model: ScheduledModel) -> bool:
    """Return whether another engine of the model serves with the options that failed here."""
    return any(each is not model and satisfies(each.spec, model.spec) for each in model.replica_set.serving)


def _refuse_load(
    state: SchedulerState, model: ScheduledModel, failure: Failure, of_others: Failure, pause: float
) -> None:
    """Refuse everything that waits for a model: loads that asked for its options with ``failure``, the rest with ``of_others``."""

    def later(refusal: Failure) -> Failure:
        return structs.replace(refusal, retry_after=pause) if refusal.http_status == 503 else refusal

    own = [caller for caller in model.loaders if caller.spec is not None and caller.spec.asked]
    model.loaders = [caller for caller in model.loaders if caller not in own]
    answers.refuse_calls(state, own, later(failure))
    answers.refuse_waiting(state, model, later(of_others))


def _roll_back(state: SchedulerState, model: ScheduledModel, failure: Failure, now: float) -> None:
    """Refuse the loads with the failed options. Everything else waits until the model is back."""
    failed = model.spec
    refused = [caller for caller in model.loaders if caller.spec is not None and satisfies(caller.spec, failed)]
    model.loaders = [caller for caller in model.loaders if caller not in refused]
    pause = state.limits.restarts.most if failure.http_status == 503 else 0.0
    reason = f"{failure.message}; it keeps its former options"
    failure = structs.replace(failure, message=reason, retry_after=pause)
    model_changes.roll_back(model, failure, now, pause)
    answers.refuse_calls(state, refused, failure)


def _log_fields(facts: EngineReady) -> dict[str, object]:
    return {
        "engine_pid": facts.engine_pid,
        "version": facts.version,
        "slots": facts.slots,
        "context": facts.context,
        "seconds": round(facts.seconds, 3),
    }


# ---- attempts ----------------------------------------------------------------------------------------------------


def attempt_ended(
    state: SchedulerState,
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
    model = state.index.running.get(key)
    if model is None:
        if code == Code.RETURNED:
            # A read has no grant, but its gateway waits anyway.
            _refuse_returned(state, key, "")
        return None
    grant = model.end_grant(key)
    if not code and grant.more:
        model.expect_piece_after(key, grant.caller)
    model.fair_share.settle(grant.caller.key if grant.caller else "", grant.charged, tokens)
    if not code and output_tokens:
        model.fair_share.learn(output_tokens)
    if not code and grant.prefixes:
        model.prefixes.learn(grant.prefixes)
    if grant.weight:
        model.used_until(now if ended_at is None else min(now, ended_at))
    state.settled = state.settled and not (model.stuck or model.retiring or idle_ttl.expired(model, now))
    if not code and grant.weight:
        model.replica_set.measure_service(now - grant.began)
    elif code == Code.RETURNED:
        model.expect_return(key, grant.order)
        _refuse_returned(state, key, model.name)
    return attempt_view(model, grant)


def _refuse_returned(state: SchedulerState, key: RequestKey, model: str) -> None:
    state.refuse(key, Failure(Code.RETURNED, "The worker never saw the gateway", model=model))


def attempt_progressed(state: SchedulerState, worker_id: str, progress: AttemptProgress) -> None:
    """An engine reports how far it is with an attempt."""
    worker = state.workers.get(worker_id)
    key = RequestKey(progress.gateway, progress.number, progress.attempt)
    grant = worker.model.grants.get(key) if worker and worker.model else None
    if grant is not None:
        grant.progress = progress


def attempt_abandoned(state: SchedulerState, worker_id: str, key: RequestKey) -> None:
    """An engine still works on an attempt, a while after its client has left."""
    worker = state.workers.get(worker_id)
    model = worker.model if worker else None
    if model is not None and key in model.grants:
        model.abandoned.add(key)
        model.replica_set.changed()
        state.settled = state.settled and not model.stuck


# ---- the end ----------------------------------------------------------------------------------------------------


def stop_reason(state: SchedulerState, model: ScheduledModel) -> str:
    """Return why a model's engine is to end, for the log."""
    if state.closing:
        return "the server stops"
    if model.unloaders:
        return "an unload was requested"
    if model.pending_spec:
        return "it is loaded again with other options"
    return "it keeps working for clients that are gone" if model.stuck and model.keep_loaded else EVICTED


def stop_all_workers(state: SchedulerState) -> None:
    """Stop every worker, whatever it does: the server ends."""
    for worker in state.workers.values():
        model = worker.model
        if worker.state is WorkerState.SPAWNED:
            state.kill_worker(worker)
        elif worker.state is WorkerState.LEAVING:
            continue
        elif model is None:
            state.stop_worker(worker)
        elif model.state in (ModelState.CHECKING, ModelState.CHECKED):
            model_changes.release_worker(state, model)
            if worker.state is WorkerState.SPARE:
                state.stop_worker(worker)
        else:
            model_changes.unload(state, model, worker)
