"""Requests that want a larger context than their model has (Ollama's ``num_ctx``): whether the model is loaded again.

A context only grows, so that clients with different wishes do not have a model loaded again and again. A context that
is large enough stays. A size that a model could not be loaded with is not tried again until the model was unloaded.
"""

from __future__ import annotations

from msgspec import structs

from protocol.failures import Failure
from protocol.models.recipes import ModelSpec
from protocol.runtime import logs
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view import SchedulerView
from supervisor.scheduler.view_values import ModelView
from workers.backends.registry import DESCRIPTORS

log = logs.get_logger()
_OPTION = "ctx_size"


def with_context(spec: ModelSpec, wanted: int, model: ModelView | None) -> ModelSpec | None:
    """Return what to load a model with for requests of ``wanted`` tokens; None to leave it as it is or would be.

    ``spec``: what it is or would be loaded with. ``model``: what the scheduler knows about it. Pure.
    """
    descriptor = DESCRIPTORS.get(spec.recipe)
    present = int(spec.options.get(_OPTION, 0))
    if descriptor is None or descriptor.option(_OPTION) is None or present <= 0:
        return None  # it has no context, or already the largest that it was trained for or that fits
    facts = model.facts if model is not None else None
    if facts is not None and facts.trained_context:
        wanted = min(wanted, facts.trained_context)
    if wanted <= max(present, facts.context if facts is not None else 0):
        return None
    if model is not None and model.worker and (model.state is not ModelState.READY or model.awaits_reload):
        return None  # it is about to be loaded with what other requests wait for
    refused = model.refused_spec if model is not None else None
    if refused is not None and int(refused.options.get(_OPTION, 0)) <= wanted:
        return None
    own = {_OPTION: wanted}
    return structs.replace(spec, options={**spec.options, **own}, asked={**spec.asked, **own})


def enlarge_context(
    view: SchedulerView, internal_calls: InternalCalls, target: ModelTarget, wanted: int
) -> ModelTarget:
    """Return the target of a request that wants a context of this many tokens.

    A loaded model with fewer is loaded again for it.

    If a model cannot be loaded with them, it is loaded without: the request may fit anyway.
    """
    model = view.model(target.name)
    spec = with_context(target.spec, wanted, model) if target.spec is not None else None
    if spec is None:
        return target
    if model is None or not (model.worker or model.keep_loaded):
        return target._replace(spec=spec, fallback=target.spec)
    log.info("loading again with a larger context", model=target.name, context=spec.options[_OPTION])
    internal_calls.load(target._replace(spec=spec), _log_failure)
    return target


def _log_failure(result: object) -> None:
    if isinstance(result, Failure):
        log.warning("not loaded again with a larger context", model=result.model, reason=result.message)
