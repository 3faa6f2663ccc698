"""What workers report about their engines: checks, starts, and engines that were lost."""

from __future__ import annotations

from protocol.messages.engines import EngineDied, EngineReady, LoadFailed, LoadProgressed, MemoryMeasured, ModelChecked
from protocol.models.memory import HOST
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.runtime.loop import Loop
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.scheduler import Scheduler
from supervisor.usage.accounting import Accounting


class EngineReports:
    """Tells the scheduler. ``accounting`` counts what a lost engine had generated."""

    def __init__(
        self,
        loop: Loop,
        models: ModelRegistry,
        scheduler: Scheduler,
        accounting: Accounting,
        record: ServerRecord,
    ) -> None:
        self._loop, self._models, self._scheduler = loop, models, scheduler
        self._accounting, self._record = accounting, record

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {
            ModelChecked: self._checked,
            LoadProgressed: self._load_progressed,
            EngineReady: self._ready,
            MemoryMeasured: self._measured,
            LoadFailed: self._load_failed,
            EngineDied: self._died,
        }

    def _checked(self, worker: str, message: ModelChecked, _payload: bytes) -> None:
        """A worker can load a model."""
        spec, node = self._runs(worker)
        estimate = self._models.measured.corrected(spec, node, message.estimate) if spec else message.estimate
        self._scheduler.model_checked(worker, estimate)

    def _load_progressed(self, worker: str, message: LoadProgressed, _payload: bytes) -> None:
        """An engine is loading its model."""
        self._scheduler.load_progressed(worker, message)

    def _ready(self, worker: str, message: EngineReady, _payload: bytes) -> None:
        """An engine answers."""
        self._scheduler.engine_ready(worker, message, self._loop.now())
        if message.memory_difference is not None:
            self._note_memory(worker, message.memory_difference)
        known = self._scheduler.view.worker(worker)
        if known is not None:
            self._record.loaded(known.model)

    def _measured(self, worker: str, message: MemoryMeasured, _payload: bytes) -> None:
        """An engine takes more memory than was known."""
        self._note_memory(worker, message.memory_difference)

    def _note_memory(self, worker: str, difference: int) -> None:
        spec, node = self._runs(worker)
        if spec is not None:
            self._models.measured.note(spec, node, {HOST: difference})

    def _runs(self, worker: str) -> tuple[ModelSpec | None, str]:
        """Return what a worker runs, and its node."""
        known = self._scheduler.view.worker(worker)
        return (known.spec, known.node) if known is not None else (None, HEAD)

    def _load_failed(self, worker: str, message: LoadFailed, _payload: bytes) -> None:
        """A check or a start of an engine failed."""
        spec, node = self._runs(worker)
        if spec is not None and message.memory_difference is not None:
            self._models.measured.note_failed(spec, node, {HOST: message.memory_difference})
        failure = self._models.specs.explained(spec, message.failure) if spec else message.failure
        self._scheduler.load_failed(worker, failure, self._loop.now())

    def _died(self, worker: str, message: EngineDied, _payload: bytes) -> None:
        """A worker lost its engine. The parts of its answers that clients have got are counted, then its grants end."""
        for end in message.unfinished:
            self._accounting.attempt_ended(worker, end)
        self._scheduler.engine_died(
            worker,
            message.failure,
            self._loop.now(),
            message.causes,
            killed=message.killed,
            worked=bool(message.unfinished),
        )
