"""Messages about inference: which model a request means, and what becomes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.failures import Code, Failure, LemonbusError
from protocol.ids import RequestKey
from protocol.messages.admin import OptionValue, StatsReport
from protocol.messages.leases import LeaseEnded, LeaseUsed
from protocol.messages.work import AttemptAbandoned, AttemptEnded, AttemptsEnded, Cancel, SubmitRequest
from protocol.models.recipes import ModelSpec
from supervisor.models import files
from supervisor.models.catalogue import CatalogueEntry
from supervisor.runtime.supervisor import Handler, Supervisor
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import ModelTarget
from workers.backends.registry import DESCRIPTORS, backend_class

MAX_STATS: Final = 256
"""Models whose last request's figures are kept."""
MAX_NAMES: Final = 1024
"""Names of running models that are remembered without looking them up again."""


def resolve_target(
    supervisor: Supervisor,
    model: str | CatalogueEntry,
    options: Mapping[str, OptionValue] | None = None,
    *,
    afresh: bool = False,
) -> ModelTarget:
    """Return what a model's name comes to; raises ``model_not_found``, and what is wrong with the options.

    Of a model that is not here it also raises what would keep it from running when it has come.

    ``afresh``: see :meth:`supervisor.models.registry.ModelRegistry.spec`.
    """
    entry = supervisor.models.resolve(model) if isinstance(model, str) else model
    scheduled = supervisor.scheduler.models.get(entry.name)
    if scheduled and (scheduled.process or scheduled.keep_loaded) and scheduled.spec and not options and not afresh:
        return ModelTarget(entry.name, scheduled.type, scheduled.spec)
    found = supervisor.models.located(entry)
    spec = supervisor.models.spec(entry, options or {}, afresh=afresh, found=found or files.expected_files(entry))
    if found is None:
        supervisor.models.precheck(spec)
        return ModelTarget(entry.name, entry.type.value, None)
    return ModelTarget(entry.name, spec.type, spec)


def submit(supervisor: Supervisor, peer: str, message: SubmitRequest, payload: bytes) -> None:
    """A gateway wants something run."""
    key = RequestKey(peer, message.number, message.attempt)
    now = supervisor.loop.now()
    try:
        if message.endpoint == "slots":
            supervisor.scheduler.state_read(key, message, payload, _model_for_slots(supervisor, message.model))
        else:
            supervisor.scheduler.request_submitted(key, message, payload, _target(supervisor, message), now)
    except LemonbusError as problem:
        supervisor.scheduler.refuse(key, problem.failure)


def _target(supervisor: Supervisor, message: SubmitRequest) -> ModelTarget:
    """Return what a request is for; the name of a model that runs is not looked up on the disk."""
    if not message.model:
        return _last_used_target(supervisor, message.endpoint)
    scheduled = supervisor.scheduler.models.get(supervisor.running_names.get(message.model, ""))
    if scheduled and scheduled.process and scheduled.process.serves and scheduled.spec:
        known: CatalogueEntry | ModelSpec = scheduled.spec
        target = ModelTarget(scheduled.name, scheduled.type, scheduled.spec)
    else:
        known = model = supervisor.models.resolve(message.model)
        if model.recipe in DESCRIPTORS:
            backend_class(model.recipe)  # before anything is downloaded that cannot be run
        target = resolve_target(supervisor, model)
        if len(supervisor.running_names) >= MAX_NAMES:
            supervisor.running_names.clear()
        supervisor.running_names[message.model] = target.name
    if not supervisor.models.serves(known, message.endpoint):
        if isinstance(known, CatalogueEntry):
            supervisor.models.descriptor(known)
        reason = f"Model {target.name} is of type {target.type} and does not serve {message.endpoint}"
        raise Failure(Code.INVALID_REQUEST, reason, model=target.name, param="model").raised()
    return target


def _last_used_target(supervisor: Supervisor, endpoint: str) -> ModelTarget:
    """Return the model used last that serves an endpoint, whether it is still loaded or not."""
    for name in supervisor.scheduler.used():
        entry = supervisor.models.find(name)
        if entry is not None and supervisor.models.serves(entry, endpoint):
            return resolve_target(supervisor, entry)
    reason = f"No model was named, and none that serves {endpoint} was used yet"
    raise Failure(Code.INVALID_REQUEST, reason, param="model").raised()


def _model_for_slots(supervisor: Supervisor, model: str) -> ScheduledModel:
    if model:
        scheduled = supervisor.scheduler.models.get(supervisor.models.resolve(model).name)
    else:
        scheduled = supervisor.scheduler.latest(
            lambda scheduled: scheduled.spec is not None and supervisor.models.serves(scheduled.spec, "slots")
        )
    spec = scheduled.spec if scheduled else None
    if scheduled is None or spec is None or not scheduled.slots or not supervisor.models.serves(spec, "slots"):
        which = f"Model {model} is not a loaded model with slots" if model else "No model with slots is loaded"
        raise Failure(Code.INVALID_REQUEST, which, param="model").raised()
    return scheduled


def idle(supervisor: Supervisor, peer: str, message: AttemptEnded, _payload: bytes) -> None:
    """An engine has stopped working on an attempt."""
    key = RequestKey(message.gateway, message.number, message.attempt)
    now = supervisor.loop.now()
    seconds = message.outcome.total_s if message.lease and message.outcome else 0.0
    scheduled = supervisor.scheduler.attempt_ended(key, message.code, now, seconds)
    if scheduled is None:
        scheduled = supervisor.scheduler.leased_attempt_ended(peer, key, seconds, now, under=bool(message.lease))
    if scheduled is not None and message.outcome is not None:
        remember_stats(supervisor, StatsReport(scheduled.name, message.outcome))


def remember_stats(supervisor: Supervisor, stats: StatsReport) -> None:
    """Keep the figures of the last finished request, and of the last one of each of the models used last."""
    supervisor.stats = stats
    by_model = supervisor.stats_by_model
    by_model.pop(stats.model, None)
    by_model[stats.model] = stats
    if len(by_model) > MAX_STATS:
        del by_model[next(iter(by_model))]


def idles(supervisor: Supervisor, peer: str, message: AttemptsEnded, payload: bytes) -> None:
    """An engine has stopped working on several."""
    for end in message.ends:
        idle(supervisor, peer, end, payload)


def unwanted(supervisor: Supervisor, peer: str, message: AttemptAbandoned, _payload: bytes) -> None:
    """An engine works on what nobody wants any more."""
    supervisor.scheduler.attempt_abandoned(peer, RequestKey(message.gateway, message.number, message.attempt))


def cancel(supervisor: Supervisor, peer: str, message: Cancel, _payload: bytes) -> None:
    """A gateway's client is gone."""
    supervisor.scheduler.request_cancelled(RequestKey(peer, message.number, message.attempt), message.reason)


def lease_used(supervisor: Supervisor, peer: str, message: LeaseUsed, _payload: bytes) -> None:
    """Something runs under a lease."""
    supervisor.scheduler.lease_used(peer, message.gateway, message.lease, message.runs)


def lease_ended(supervisor: Supervisor, peer: str, message: LeaseEnded, _payload: bytes) -> None:
    """Slots that were lent are back."""
    supervisor.scheduler.lease_ended(peer, message.gateway, message.lease, message.runs, supervisor.loop.now())


HANDLERS: Final[dict[type, Handler]] = {
    SubmitRequest: submit,
    AttemptEnded: idle,
    AttemptsEnded: idles,
    AttemptAbandoned: unwanted,
    Cancel: cancel,
    LeaseUsed: lease_used,
    LeaseEnded: lease_ended,
}
