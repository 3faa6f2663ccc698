"""Messages about inference requests: which model a request means, and its submission, end and cancellation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec import structs

from protocol.config.api_keys import model_allowed
from protocol.failures import Code, Failure, LemonbusError, failure_of_configuration
from protocol.ids import RequestKey
from protocol.messages.events import total_outcome
from protocol.messages.health import StatsReport
from protocol.messages.work import (
    ENGINE_STATE_ENDPOINTS,
    AnswerLost,
    AttemptAbandoned,
    AttemptEnded,
    AttemptProgress,
    AttemptsEnded,
    Cancel,
    ReserveRequest,
    SubmitRequest,
)
from protocol.models.recipes import ModelSpec, OptionValue
from supervisor.handlers.context_size import enlarge_context
from supervisor.models import files
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.runtime.supervisor import Handler, Supervisor
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.view import ModelView
from workers.backends.registry import DESCRIPTORS, backend_class

AnyRequest = SubmitRequest | ReserveRequest
MAX_STATS: Final = 256
"""How many models' latest figures are kept."""
MAX_NAMES: Final = 1024
"""How many names of running models are remembered, so that they are not looked up again."""


def resolve_target(
    supervisor: Supervisor,
    model: str | CatalogueEntry,
    options: Mapping[str, OptionValue] | None = None,
    *,
    ignore_saved: bool = False,
) -> ModelTarget:
    """Return the model that a name means, in the scheduler's form.

    Raises ``model_not_found``, or what is wrong with the options. For a model that is not downloaded, also raises what
    would keep it from running after its download.

    ``ignore_saved``: see :meth:`supervisor.models.options.model_specs.SpecBuilder.build`.
    """
    entry = supervisor.models.resolve(model) if isinstance(model, str) else model
    known = supervisor.scheduler.view.model(entry.name)
    if known and (known.worker or known.keep_loaded) and known.spec and not options and not ignore_saved:
        return known.target
    found = supervisor.models.located(entry)
    spec = supervisor.models.spec(
        entry, options or {}, ignore_saved=ignore_saved, found=found or files.expected_files(entry)
    )
    if found is None:
        supervisor.models.specs.precheck(spec)
        return ModelTarget(entry.name, entry.type.value, None)
    return ModelTarget(entry.name, spec.type, spec)


def submit(supervisor: Supervisor, peer: str, message: SubmitRequest, payload: bytes) -> None:
    """Submit a gateway's request to the scheduler."""
    key = RequestKey(peer, message.number, message.attempt)
    if message.retry_reason:
        supervisor.metrics.attempt_retried(message.retry_reason)
    elif message.caller is not None and not message.reservation and message.earlier is None:
        supervisor.metrics.request_submitted(message.caller.key)
    try:
        if message.endpoint in ENGINE_STATE_ENDPOINTS:
            name = _loaded_model(supervisor, message)
            _check_model(message, name)
            supervisor.scheduler.state_read(key, message, payload, name)
        else:
            target = _request_target(supervisor, message)
            _check_download(message, target)
            if not message.model and (entry := supervisor.models.known(target.name)):
                message = structs.replace(message, model=entry.short_name)  # its answer says which model it is from
            run = partial(_submit_to_scheduler, supervisor, key, message, payload, target)
            reservation = RequestKey(peer, message.reservation, 0) if message.reservation else None
            known = message.age is not None and supervisor.scheduler.view.knows_attempt(key)
            admitted = message.admitted or message.earlier is not None or known
            supervisor.admission.admit(key, message.caller, run, reservation, admitted=admitted)
    except LemonbusError as problem:
        supervisor.scheduler.refuse(key, problem.failure)


def reserve(supervisor: Supervisor, peer: str, message: ReserveRequest, _payload: bytes) -> None:
    """If a coming request would be refused, refuse it now; else count it against the limits of its key."""
    if message.caller is not None:
        supervisor.metrics.request_submitted(message.caller.key)
    call = RequestKey(peer, message.number, 0)
    try:
        _check_download(message, _request_target(supervisor, message))
        accepted = partial(supervisor.calls.answer, peer, message.number, None)
        supervisor.admission.reserve(call, message.caller, accepted)
    except LemonbusError as problem:
        supervisor.scheduler.refuse(call, problem.failure)


def _submit_to_scheduler(
    supervisor: Supervisor, key: RequestKey, message: SubmitRequest, payload: bytes, target: ModelTarget
) -> None:
    now = supervisor.loop.now()
    if message.context:
        target = enlarge_context(supervisor, target, message.context, now)
    supervisor.scheduler.request_submitted(key, message, payload, target, now)


def _configured_target(supervisor: Supervisor, model: str | CatalogueEntry) -> ModelTarget:
    """Return a model as the configuration wants it loaded.

    Raises like :func:`resolve_target`, but never as a client's error.
    """
    try:
        return resolve_target(supervisor, model)
    except LemonbusError as problem:
        name = model if isinstance(model, str) else model.name
        raise failure_of_configuration(problem.failure, name).raised() from problem


def _request_target(supervisor: Supervisor, message: AnyRequest) -> ModelTarget:
    """Return the model of a request. The name of a running model is not looked up on the disk."""
    if not message.model:
        return _unnamed_target(supervisor, message)
    running = supervisor.scheduler.view.serving(supervisor.running_names.get(message.model, ""))
    if running is not None and running.spec is not None:
        _check_model(message, running.name)
        known: CatalogueEntry | ModelSpec = running.spec
        target = running
    else:
        known = model = supervisor.models.resolve(message.model, _models_of(message))
        _check_model(message, model.name)
        if model.recipe in DESCRIPTORS:
            backend_class(model.recipe)  # raises if this machine cannot run it, before it is downloaded
        target = _configured_target(supervisor, model)
        if len(supervisor.running_names) >= MAX_NAMES:
            supervisor.running_names.clear()
        supervisor.running_names[message.model] = target.name
    if not supervisor.models.serves(known, message.endpoint):
        if isinstance(known, CatalogueEntry):
            supervisor.models.descriptor(known)
        routes = supervisor.models.routes(known)
        own = f"; it serves {', '.join(routes)}" if routes else ""
        reason = f"Model {target.name} is of type {target.type} and does not serve {message.endpoint}{own}"
        raise Failure(Code.INVALID_REQUEST, reason, model=target.name, param="model").raised()
    return target


def _unnamed_target(supervisor: Supervisor, message: AnyRequest) -> ModelTarget:
    """Return the model for a request that names none: the default model, else the one used last.

    It serves the endpoint, and the caller may use it; it need not be loaded.
    """
    for name in filter(None, [supervisor.models.user_names.default, *supervisor.scheduler.view.used()]):
        entry = supervisor.models.find(name)
        if entry is not None and supervisor.models.serves(entry, message.endpoint) and _may_use(message, entry.name):
            return _configured_target(supervisor, entry)
    reason = f"No model was named, and none that serves {message.endpoint} was used yet"
    raise Failure(Code.INVALID_REQUEST, reason, param="model").raised()


def _models_of(message: AnyRequest) -> list[str]:
    """Return the patterns of the models that the caller's key may use; empty: all models."""
    return message.caller.models if message.caller else []


def _may_use(message: AnyRequest, model: str) -> bool:
    return model_allowed(_models_of(message), model)


def _check_model(message: AnyRequest, model: str) -> None:
    """Refuse a model that the caller's key may not use, whatever name the client gave it."""
    if not _may_use(message, model):
        key = message.caller.key if message.caller else ""
        reason = f"The API key {key} may not use model {model}"
        raise Failure(Code.FORBIDDEN, reason, model=model, param="model").raised()


def _check_download(message: AnyRequest, target: ModelTarget) -> None:
    """Refuse a request that would start a download, or wait for one, although it may not."""
    if target.spec is None and message.download_refusal:
        reason = f"Model {target.name} is not on this machine, and {message.download_refusal}"
        raise Failure(Code.FORBIDDEN, reason, model=target.name, param="model").raised()


def _loaded_model(supervisor: Supervisor, message: SubmitRequest) -> str:
    """Return the registered name of the loaded model for a read of an engine's state."""
    model, endpoint = message.model, message.endpoint

    def answers(loaded: ModelView) -> bool:
        return loaded.spec is not None and supervisor.models.serves(loaded.spec, endpoint)

    if model:
        found = supervisor.scheduler.view.model(supervisor.models.resolve(model, _models_of(message)).name)
    else:
        found = supervisor.scheduler.view.latest(lambda each: answers(each) and _may_use(message, each.name))
    if found is None or not found.slots or not answers(found):
        which = (
            f"Model {model} is not a loaded model with {endpoint}" if model else f"No model with {endpoint} is loaded"
        )
        raise Failure(Code.INVALID_REQUEST, which, param="model").raised()
    return found.name


def attempt_ended(supervisor: Supervisor, _peer: str, message: AttemptEnded, _payload: bytes) -> None:
    """Free the slots of an attempt that its engine no longer works on."""
    key = RequestKey(message.gateway, message.number, message.attempt)
    outcome = message.outcome
    output_tokens = outcome.output_tokens if outcome else message.tokens
    tokens = output_tokens + (outcome.prompt_tokens if outcome else message.prompt_tokens)
    now = supervisor.loop.now()
    ended = supervisor.scheduler.attempt_ended(key, message.code, now, tokens, output_tokens, now - message.age)
    if ended is None:
        return
    model = ended.model
    supervisor.admission.ended(ended.caller, tokens)
    if outcome is None:
        supervisor.metrics.generation_stopped(model, message.tokens)
    else:
        supervisor.metrics.generation_ended(model, outcome)
        whole = total_outcome([ended.earlier, outcome]) if ended.earlier else outcome
        remember_stats(supervisor, StatsReport(model, whole))
        supervisor.scheduler.count("tokens_generated", output_tokens)


def remember_stats(supervisor: Supervisor, stats: StatsReport) -> None:
    """Keep the figures of the last finished request, and for each of the latest models, of its last one."""
    by_model = supervisor.stats_by_model
    by_model.pop(stats.model, None)
    by_model[stats.model] = stats
    if len(by_model) > MAX_STATS:
        del by_model[next(iter(by_model))]


def attempts_ended(supervisor: Supervisor, peer: str, message: AttemptsEnded, payload: bytes) -> None:
    """Free the slots of several attempts."""
    for end in message.ends:
        attempt_ended(supervisor, peer, end, payload)


def attempt_progressed(supervisor: Supervisor, peer: str, message: AttemptProgress, _payload: bytes) -> None:
    """Note how far an engine is with an attempt."""
    supervisor.scheduler.attempt_progressed(peer, message)


def attempt_abandoned(supervisor: Supervisor, peer: str, message: AttemptAbandoned, _payload: bytes) -> None:
    """Note that an engine still works on an attempt after its client has gone."""
    supervisor.scheduler.attempt_abandoned(peer, RequestKey(message.gateway, message.number, message.attempt))


def answer_lost(supervisor: Supervisor, _peer: str, message: AnswerLost, _payload: bytes) -> None:
    """Count what was sent of a stream whose worker is gone."""
    supervisor.metrics.generation_stopped(message.model, message.tokens)
    supervisor.admission.ended(message.caller, message.tokens)


def cancel(supervisor: Supervisor, peer: str, message: Cancel, _payload: bytes) -> None:
    """Cancel an attempt whose client has gone."""
    key = RequestKey(peer, message.number, message.attempt)
    supervisor.admission.cancelled(key)
    supervisor.scheduler.request_cancelled(key, message.reason)


HANDLERS: Final[dict[type, Handler]] = {
    SubmitRequest: submit,
    ReserveRequest: reserve,
    AttemptEnded: attempt_ended,
    AttemptsEnded: attempts_ended,
    AttemptAbandoned: attempt_abandoned,
    AttemptProgress: attempt_progressed,
    AnswerLost: answer_lost,
    Cancel: cancel,
}
