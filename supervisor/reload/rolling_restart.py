"""The rolling restart of what a new supervisor took over but was started with other settings, or by another release.

Gateways are replaced where they are adopted (:class:`~supervisor.processes.gateway_process.GatewayProcess`). Here,
spare workers end, and models whose sections of the configuration changed are loaded again as soon as their requests
have ended.
"""

from __future__ import annotations

from functools import partial

from protocol.config.settings import Settings
from protocol.failures import Failure, LemonbusError
from protocol.messages.engines import SetRequestRules
from protocol.models.recipes import ModelSpec
from protocol.runtime import logs
from supervisor.bus.sockets import SupervisorBus
from supervisor.models.options.model_configuration import ModelKey, engine_fingerprint
from supervisor.models.registry import ModelRegistry
from supervisor.processes.worker_processes import WorkerProcesses
from supervisor.reload.plan import ReloadableModel
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.scheduler import Scheduler
from supervisor.scheduler.view import SchedulerView

log = logs.get_logger()


def reloadable_models(models: ModelRegistry, view: SchedulerView, new: Settings) -> list[ReloadableModel]:
    """Return the models that have an engine, with what the sections say now and in the new settings."""
    before, after = models.configuration, models.configuration_of(new)
    found = []
    for model in view.models():
        if model.worker and model.spec is not None:
            key = ModelKey(model.name, model.spec.recipe)
            names = frozenset({before.section_of(model.name), after.section_of(model.name)})
            found.append(ReloadableModel(*key, names, before.of(key), after.of(key)))
    return found


class RollingRestart:
    """The restart of outdated workers and models, each as soon as nothing uses it."""

    def __init__(
        self,
        bus: SupervisorBus,
        workers: WorkerProcesses,
        models: ModelRegistry,
        scheduler: Scheduler,
        internal_calls: InternalCalls,
    ) -> None:
        self._bus, self._workers, self._models = bus, workers, models
        self._scheduler, self._internal_calls = scheduler, internal_calls

    def begin(self) -> None:
        """Replace what is outdated, and tell workers their new rules.

        To be called once, when everything that runs was taken over.
        """
        self._send_rules()
        workers = [each.worker for each in self._scheduler.view.workers()]
        self._scheduler.stop_spares([worker for worker in workers if self._workers.is_outdated(worker)])
        outdated = [
            (model.name, model.spec)
            for model in self._scheduler.view.models()
            if model.worker and model.spec is not None and any(map(self._is_outdated, model.specs))
        ]
        for name, spec in outdated:
            if spec.engine and self._models.known(name) is None:
                log.info("model is unloaded: its section of the configuration is gone", model=name)
                self._internal_calls.unload([name], lambda: None)
                continue
            try:
                fresh = self._models.spec(name, spec.asked)
            except LemonbusError as problem:
                log.warning("model not reloaded for its new configuration", model=name, reason=problem.failure.message)
                continue
            log.info("model is reloaded for its new configuration when its requests have ended", model=name)
            self._internal_calls.load(ModelTarget(name, fresh.type, fresh), partial(_reloaded, name))

    def _send_rules(self) -> None:
        """Tell workers that have a model how the configuration changes its requests: it may say other things now.

        Other workers get the rules with each start of an engine (``effect_executor.py``).
        """
        for worker in self._scheduler.view.workers():
            if worker.spec is not None:
                rules = self._models.configuration.request_rules(worker.spec)
                self._bus.send(worker.worker, SetRequestRules(rules))

    def _is_outdated(self, spec: ModelSpec) -> bool:
        configured = self._models.configuration.of(ModelKey(spec.name, spec.recipe))
        return spec.configured != engine_fingerprint(configured)


def _reloaded(name: str, result: object) -> None:
    if isinstance(result, Failure):
        log.error("model not reloaded for its new configuration", model=name, reason=result.message)
