"""Events of clients, by way of gateways: requests, loads, unloads, downloads; the end of a caller or a gateway. Pure."""

from __future__ import annotations

from msgspec import structs

from protocol.failures import DOWNLOAD_FAILURES, Code, Failure
from protocol.ids import RequestKey
from protocol.messages.models import PolicyOverrides
from protocol.messages.work import Cancel, GrantedAttempt, SubmitRequest
from protocol.models.recipes import ModelSpec
from supervisor.scheduler import known_models, model_changes
from supervisor.scheduler.effects import AnswerCall, NotifyGrant, SendMessage
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.queue import admission, answers
from supervisor.scheduler.queue.grants import free_weight, grant, may_read, send_run
from supervisor.scheduler.queue.work_items import BATCH_ORDER, PendingCall, QueuedRequest
from supervisor.scheduler.replicas import replica_choice
from supervisor.scheduler.scheduled_model import ScheduledModel, needs_new_engine
from supervisor.scheduler.state import SchedulerState

# ---- requests ----------------------------------------------------------------------------------------------------


def request_submitted(
    state: SchedulerState, key: RequestKey, request: SubmitRequest, payload: bytes, target: ModelTarget, now: float
) -> None:
    """A gateway wants a request run."""
    if request.age is not None and _known_already(state, key, target.name):
        return
    model = known_models.find_or_add(state, target)
    order = model.replica_set.take_returning(key) or next(state.order) + (BATCH_ORDER if request.batch else 0)
    waiting = QueuedRequest(key, request, payload, order, now - (request.age or 0.0))
    if refused := state.crashes.refusal(model.name, request, now):
        state.refuse(key, refused)
        return
    if _read_granted_at_once(state, model, waiting, now):
        return
    if refused := admission.refusal(state, model, request, now):
        state.refuse(key, refused)
        return
    if request.ttl is not None and request.ttl != model.overrides.ttl:
        known_models.override_policy(model, PolicyOverrides(ttl=request.ttl))
        state.settled = False  # the model's worker must remember it
    if state.settled and _granted_at_once(state, model, waiting, now):
        return
    state.settled = False
    model.queue.add(waiting)


def _known_already(state: SchedulerState, key: RequestKey, name: str) -> bool:
    """Return whether this attempt was submitted before. If it runs or has ended, also tell its gateway where.

    ``name``: that of its model.
    """
    if key in state.index.waiting:
        return True
    ended_at = state.ended_before.pop(key, "")
    model = state.index.running.get(key)
    worker_id = model.worker.id if model is not None and model.worker is not None else ended_at
    if worker_id in state.workers:
        state.emit(NotifyGrant(key.gateway, GrantedAttempt(key.number, key.attempt, worker_id, name)))
    elif worker_id:
        state.refuse(key, Failure(Code.RETURNED, "The worker of the request is gone", model=name))
    return bool(worker_id)


def _read_granted_at_once(state: SchedulerState, model: ScheduledModel, waiting: QueuedRequest, now: float) -> bool:
    """Grant a read of a ready model, however many requests wait for its slots."""
    if waiting.request.weight:
        return False
    for each in model.replica_set.replicas if len(model.replica_set.replicas) > 1 else (model,):
        worker = each.worker
        if not state.closing and each.state is ModelState.READY and worker is not None and may_read(each, waiting):
            grant(state, each, worker, waiting, weight=0, now=now)
            return True
    return False


def _granted_at_once(state: SchedulerState, model: ScheduledModel, waiting: QueuedRequest, now: float) -> bool:
    """Grant, if the model is ready and has free slots; only for a settled state, in which no request waits."""
    worker = model.worker
    if model.state is not ModelState.READY or worker is None or waiting.request.suspect or waiting.is_read:
        return False
    if len(model.replica_set.replicas) > 1:
        return replica_choice.grant_at_once(state, model.replica_set, waiting, now)
    weight = free_weight(model, waiting)
    if weight is None:
        return False
    grant(state, model, worker, waiting, weight=weight, now=now)
    return True


def state_read(state: SchedulerState, key: RequestKey, request: SubmitRequest, payload: bytes, name: str) -> None:
    """A gateway wants to read the state of the engine of a loaded model, given by its registered name.

    This does not count as use of the model, and delays nothing.
    """
    known = state.replica_sets.get(name)
    model = known.lead if known is not None else None
    if model is None or model.worker is None or not model.worker.serves:
        state.refuse(key, Failure(Code.NOT_LOADED, f"Model {name} is not loaded", model=name))
        return
    send_run(state, model, model.worker, QueuedRequest(key, request, payload, 0, 0.0))


def expect_no_piece_after(state: SchedulerState, gateway: str, number: int) -> None:
    """The piece after this one of a long list has come, or never will. This one's end may still have to be reported."""
    for key, model in list(state.index.lists.get((gateway, number), {}).items()):
        model.expect_no_piece_after(key)


def request_cancelled(state: SchedulerState, key: RequestKey, reason: str) -> None:
    """The client is gone. A grant ends when the worker reports the attempt's end, not now."""
    expect_no_piece_after(state, key.gateway, key.number)
    model = state.index.running.get(key)
    if model is not None:
        if model.worker:
            state.emit(SendMessage(model.worker.id, Cancel(*key, reason)))
    elif key in state.index.waiting:
        state.index.waiting[key].queue.remove(key)


# ---- loads and unloads -------------------------------------------------------------------------------------------


def load_requested(
    state: SchedulerState, peer: str, number: int, target: ModelTarget, now: float, *, repeated: bool = False
) -> None:
    """A caller wants a model loaded with these options.

    This ends the pause after a failed load, and forgets who crashed its engine. ``repeated``: the load has failed before,
    and the server itself repeats it, so its failures still count, and it evicts no other model.
    """
    key = RequestKey(peer, number, 0)
    failure = _refused_before(state, target, now)
    if failure is None and state.closing:
        failure = Failure(Code.DRAINING, "The server is shutting down")
    if failure is not None:
        state.refuse(key, failure)
        return
    state.settled = False
    model = known_models.find_or_add(state, target, load=True)
    wanted = None if target.any else target.spec
    caller = PendingCall(peer, number, next(state.order), wanted, target.options, repeated=repeated)
    known_models.request_options(model, target)
    if not repeated:
        model.backoff.ready()
        model.search.failed_copies.clear()
    state.crashes.forget(model.name)
    for node in state.nodes.values():
        if node.spawn_backoff.pause(now):
            node.spawn_backoff.ready()
            node.changed()
    ready = model.replica_set.ready
    if ready is not None:
        answers.answer_load(state, ready, caller)
        ready.last_use = now
    else:
        model.loaders.append(caller)
        model.replica_set.changed()


def _refused_before(state: SchedulerState, target: ModelTarget, now: float) -> Failure | None:
    """If these options have just failed to start an engine, return why a working engine is not ended for them."""
    known = state.replica_sets.get(target.name)
    model = known.lead if known is not None else None
    if model is None or not (model.worker is not None or model.keep_loaded):
        return None
    refused = model.refused_reload
    if refused is None or target.spec is None or now >= refused.until or needs_new_engine(target.spec, refused.spec):
        return None
    return structs.replace(refused.failure, retry_after=refused.until - now)


def unload_requested(state: SchedulerState, peer: str, number: int, name: str) -> bool:
    """A caller wants a model unloaded; return False if it is neither loaded nor about to be.

    Running requests end first, and waiting requests have it loaded again. A load in progress ends here, and everything
    that waits for it is refused.
    """
    known = state.replica_sets.get(name)
    if known is None or not any(each.unloadable for each in known.replicas):
        return False
    for each in known.replicas:
        model_changes.stop_keeping(each)
        known_models.allow_refused_options(each)
    known_models.drop_overrides(known.lead)
    failure = Failure(Code.UNLOADED, f"Model {name} was unloaded while it was loading")
    refuse = answers.refuse_loads if known.serving else answers.refuse_waiting
    refuse(state, known.lead, failure)
    for each in known.replicas:
        model_changes.stop_loading(state, each)
    call = PendingCall(peer, number, 0)
    leaving = [each for each in known.replicas if each.worker is not None]
    if not leaving:
        state.emit(AnswerCall(peer, number, [name]))
    for each in leaving:
        each.unloaders.append(call)
    return True


def overrides_requested(state: SchedulerState, peer: str, number: int, name: str, asked: PolicyOverrides) -> bool:
    """A caller wants a loaded model to be treated otherwise; return False if it is neither loaded nor about to be."""
    known = state.replica_sets.get(name)
    if known is None or not any(each.unloadable for each in known.replicas):
        return False
    known_models.override_policy(known.lead, asked)
    answers.answer_when_remembered(state, known.lead, PendingCall(peer, number, 0), name)
    state.settled = False
    return True


def model_deleted(state: SchedulerState, name: str) -> None:
    """The files of a model are about to be removed: nothing waits for it any more, and it does not come back."""
    state.failed_checks.forget(name)
    state.crashes.forget(name)
    known = state.replica_sets.get(name)
    if known is not None:
        for each in known.replicas:
            model_changes.stop_keeping(each)
        failure = Failure(Code.MODEL_NOT_FOUND, f"model {name} was deleted", model=name)
        answers.refuse_waiting(state, known.lead, failure)


def call_abandoned(state: SchedulerState, peer: str, number: int) -> None:
    """A caller hung up: what it began goes on, but is not answered.

    A load that has not begun is no longer wanted. An unload has begun: it ended the loads of other callers at once.
    """
    state.look_at_all()
    for model in state.models.values():
        model.loaders = [call for call in model.loaders if (call.peer, call.number) != (peer, number)]
        for call in model.unloaders:
            call.abandoned = call.abandoned or (call.peer, call.number) == (peer, number)


# ---- downloads ---------------------------------------------------------------------------------------------------


def download_ended(
    state: SchedulerState, name: str, spec: ModelSpec | None, failure: Failure | None, now: float
) -> None:
    """A download succeeded (``spec``) or failed. Requests do not begin a failed one again."""
    known_model = state.replica_sets.get(name)
    if known_model is None:
        return
    known_model.changed()
    model = known_model.lead
    waited = model_changes.end_download(model, spec)
    known = model.backoff.failure
    if spec is not None and known is not None and known.code in DOWNLOAD_FAILURES:
        model.backoff.ready()
    if failure is None or not waited:
        return
    if failure.code in DOWNLOAD_FAILURES and not model.provisional:
        model.backoff.load_failed(failure, now)
    if failure.code in (Code.DOWNLOAD_FAILED, Code.INSUFFICIENT_STORAGE) and not model.provisional:
        failure = structs.replace(failure, retry_after=max(failure.retry_after, model.backoff.pause(now)))
    answers.refuse_waiting(state, model, failure)


# ---- the end -----------------------------------------------------------------------------------------------------


def gateway_gone(state: SchedulerState, gateway: str) -> None:
    """A gateway is gone: its waiting requests are dropped, and its running ones are cancelled."""
    state.look_at_all()
    for model in state.models.values():
        for waiting in [waiting for waiting in model.queue if waiting.key.gateway == gateway]:
            model.queue.remove(waiting.key)
        model.loaders = [call for call in model.loaders if call.peer != gateway]
        for call in model.unloaders:
            call.abandoned = call.abandoned or call.peer == gateway
        model.returning = {key: order for key, order in model.returning.items() if key[0] != gateway}
        for key in [key for key in (*model.grants, *model.unfinished) if key.gateway == gateway]:
            model.expect_no_piece_after(key)
            if model.worker and key in model.grants:
                state.emit(SendMessage(model.worker.id, Cancel(*key, Code.GATEWAY_GONE)))


def close(state: SchedulerState) -> None:
    """Accept nothing new and refuse what waits; what has begun goes on."""
    state.closing = True
    state.look_at_all()
    for model in list(state.models.values()):
        model_changes.stop_keeping(model)
        answers.refuse_at_end(state, model)
