"""What workers report about their engines: checks, starts, and engines that were lost."""

from __future__ import annotations

from protocol.ids import RequestKey
from protocol.messages.peers import EngineDied, EngineReady, LoadFailed, ModelChecked
from protocol.runtime.loop import Loop
from supervisor.limits.key_admission import KeyAdmission
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.models.registry import ModelRegistry
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.scheduler import Scheduler


class EngineReports:
    """Tells the scheduler. ``admission`` and ``metrics`` count what a lost engine had generated."""

    def __init__(
        self, loop: Loop, models: ModelRegistry, scheduler: Scheduler, admission: KeyAdmission, metrics: ServerMetrics
    ) -> None:
        self._loop, self._models, self._scheduler = loop, models, scheduler
        self._admission, self._metrics = admission, metrics

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            ModelChecked: self._checked,
            EngineReady: self._ready,
            LoadFailed: self._load_failed,
            EngineDied: self._died,
        }

    def _checked(self, worker: str, message: ModelChecked, _payload: bytes) -> None:
        """A worker can load a model."""
        self._scheduler.model_checked(worker, message.need, message.available)

    def _ready(self, worker: str, message: EngineReady, _payload: bytes) -> None:
        """An engine answers."""
        self._scheduler.engine_ready(worker, message, self._loop.now())

    def _load_failed(self, worker: str, message: LoadFailed, _payload: bytes) -> None:
        """A check or a start of an engine failed."""
        known = self._scheduler.view.worker(worker)
        spec = known.spec if known is not None else None
        failure = self._models.specs.explained(spec, message.failure) if spec else message.failure
        self._scheduler.load_failed(worker, failure, self._loop.now())

    def _died(self, worker: str, message: EngineDied, _payload: bytes) -> None:
        """A worker lost its engine. The parts of its answers that clients have got are counted, then its grants end."""
        for each in message.unfinished:
            key = RequestKey(each.gateway, each.number, each.attempt)
            attempt = self._scheduler.view.attempt_of_worker(worker, key)
            if attempt is not None:
                self._metrics.generation_stopped(attempt.model, each.tokens)
                self._admission.ended(attempt.caller, each.prompt_tokens + each.tokens)
        self._scheduler.engine_died(worker, message.failure, self._loop.now(), message.causes)
