"""Replaces step by step what a new supervisor took over but was started with other settings, or by another release.

Gateways are replaced where they are adopted (:class:`~supervisor.processes.gateway_process.GatewayProcess`). Here,
spare workers end, and models whose sections of the configuration changed are loaded again as soon as their requests
have ended.
"""

from __future__ import annotations

from functools import partial

from protocol.config.settings import Settings
from protocol.failures import Failure, LemonbusError
from protocol.models.recipes import ModelSpec
from protocol.runtime import logs
from supervisor.models.options.model_configuration import ModelKey, engine_fingerprint
from supervisor.reload.plan import ReloadableModel
from supervisor.runtime import request_rules
from supervisor.runtime.supervisor import Supervisor
from supervisor.scheduler.inputs import ModelTarget

log = logs.get_logger()


def reloadable_models(supervisor: Supervisor, new: Settings) -> list[ReloadableModel]:
    """Return the models that have an engine, with what the sections say now and in the new settings."""
    before, after = supervisor.models.configuration, supervisor.models.configuration_of(new)
    found = []
    for model in supervisor.scheduler.view.models():
        if model.worker and model.spec is not None:
            key = ModelKey(model.name, model.spec.recipe)
            names = frozenset({before.section_of(model.name), after.section_of(model.name)})
            found.append(ReloadableModel(*key, names, before.of(key), after.of(key)))
    return found


def bring_up_to_date(supervisor: Supervisor) -> None:
    """Replace what is outdated, and tell workers their new rules.

    To be called once, when everything that runs was taken over.
    """
    request_rules.send_to_loaded(supervisor)
    scheduler = supervisor.scheduler
    workers = [each.worker for each in scheduler.view.workers()]
    scheduler.stop_spares([worker for worker in workers if supervisor.workers.is_outdated(worker)])
    outdated = [
        (model.name, model.spec)
        for model in scheduler.view.models()
        if model.worker and model.spec is not None and _is_outdated(supervisor, model.spec)
    ]
    for name, spec in outdated:
        try:
            fresh = supervisor.models.spec(name, spec.asked)
        except LemonbusError as problem:
            log.warning("model not reloaded for its new configuration", model=name, reason=problem.failure.message)
            continue
        log.info("model is reloaded for its new configuration when its requests have ended", model=name)
        number = supervisor.internal_calls.begin(partial(_reloaded, name))
        scheduler.load_requested("", number, ModelTarget(name, fresh.type, fresh), supervisor.loop.now())


def _is_outdated(supervisor: Supervisor, spec: ModelSpec) -> bool:
    configured = supervisor.models.configuration.of(ModelKey(spec.name, spec.recipe))
    return spec.configured != engine_fingerprint(configured)


def _reloaded(name: str, result: object) -> None:
    if isinstance(result, Failure):
        log.error("model not reloaded for its new configuration", model=name, reason=result.message)
