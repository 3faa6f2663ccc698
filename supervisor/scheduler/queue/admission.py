"""Admission control: whether a request may wait for a model. If it may not, when its client should try again. Pure."""

from __future__ import annotations

from protocol.failures import Code, Failure
from protocol.messages.work import SubmitRequest
from supervisor.scheduler import spare_workers
from supervisor.scheduler.queue import answers
from supervisor.scheduler.scheduled_model import ScheduledModel, with_model
from supervisor.scheduler.state import SchedulerState


def refusal(state: SchedulerState, model: ScheduledModel, request: SubmitRequest, now: float) -> Failure | None:
    """Return why a request may not wait for ``model``, None if it may.

    For a full queue, its ``retry_after`` estimates when the requests ahead will have ended.
    """
    if state.closing and not (request.earlier is not None and model.serves_to_the_end):
        return answers.server_ends(state)
    if model.worker is None and state.spawn_problem is not None:
        failure = spare_workers.refusal_without_workers(state, now)
        if failure is not None:
            return with_model(model, failure)
    if not (model.worker and model.worker.serves) and model.backoff.pause(now):
        return model.backoff.refusal(model.name, now)
    if request.attempt > 1 or request.age is not None or request.earlier is not None:
        return None  # it, or its first piece, was accepted before
    return _full_queue(state, model, request)


def _full_queue(state: SchedulerState, model: ScheduledModel, request: SubmitRequest) -> Failure | None:
    if not model.queue:
        return None
    most = model.policy.queue or state.limits.queue_requests
    key = request.caller.key if request.caller else ""
    bytes_of_key = model.queue.bytes_of(key) if key else 0
    if (queued := model.queue.count_of(key)) >= most:
        what = f"{queued} requests"
    elif bytes_of_key and bytes_of_key + request.size > state.limits.queue_bytes // 2:
        what = f"{bytes_of_key} bytes of this API key"  # half of the limit: one key must not keep others out
    elif model.queue and model.queue.bytes + request.size > state.limits.queue_bytes:
        what = f"{model.queue.bytes} bytes"
    else:
        return None
    reason = f"The queue of model {model.name} is full ({what} wait): send fewer requests at once, or try again later"
    return Failure(Code.OVERLOADED, reason, model=model.name, retry_after=model.wait_s())
