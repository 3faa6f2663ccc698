"""The steps of a load that the supervisor orders: the model is checked, then its engine is started.

Each `CheckModel` is answered with `ModelChecked` or `LoadFailed`; each `StartEngine` that fails at once with `LoadFailed`, even when
our own code raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.engines import CheckModel, LoadFailed, StartEngine
from protocol.models.recipes import ModelSpec, with_backend
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from workers.backends import registry
from workers.backends.engine_facts import ModelFacts
from workers.requests.worker_requests import WorkerRequests
from workers.worker import engine_failures
from workers.worker.engine_reports import without_secrets
from workers.worker.engine_session import EngineSession, SessionOwner
from workers.worker.load_check import check_model, with_context


class ModelLoader:
    """Checks models, and starts their engines."""

    def __init__(
        self, loop: Loop, settings: Settings, requests: WorkerRequests, owner: SessionOwner, send: Callable[[Any], None]
    ) -> None:
        """``requests``: those of the engine. ``owner`` is told about its state. ``send`` sends to the supervisor."""
        self._loop, self._settings, self._requests = loop, settings, requests
        self._owner, self._send = owner, send
        self._checked: tuple[ModelSpec, ModelFacts] | None = None
        """The model that was checked last, and what the headers of its files contain."""

    def answer(self, spec: ModelSpec, step: Callable[[], None]) -> None:
        """Take a step of a load. If it raises, report it as failed."""
        try:
            step()
        except LemonbusError as problem:
            self._send(LoadFailed(problem.failure))
        except Exception as error:
            message = f"{spec.name} cannot be loaded: an internal error"
            self._send(LoadFailed(Failure(Code.INTERNAL, message, model=spec.name, detail=repr(error))))
            raise

    def check(self, order: CheckModel) -> None:
        """Check everything that needs no engine."""
        spec = _ordered(order)
        backend = registry.backend_class(spec.recipe)(spec, self._settings)
        backend.devices = order.devices
        report, facts = check_model(spec, backend)
        self._checked = (spec, facts)
        self._send(report)

    def start(self, order: StartEngine, log: logs.Logger, *, restore_caches: bool) -> EngineSession:
        """Start the engine of a model, which is checked first if it was not. ``restore_caches``: as in :class:`EngineSession`."""
        spec = _ordered(order)
        backend = registry.backend_class(spec.recipe)(with_context(spec, order.context), self._settings)
        if self._checked is None or self._checked[0] != spec:
            self._checked = (spec, check_model(spec, backend)[1])
        backend.model_facts = self._checked[1]
        try:
            backend.prepare()
            session = EngineSession(
                self._loop,
                self._settings,
                backend,
                log,
                self._owner,
                self._requests.busy,
                self._requests.line_attribution,
                self._requests.report_progress,
                restore_caches=restore_caches,
            )
        except OSError as problem:
            raise engine_failures.not_loaded(backend, "cannot be started", str(problem)).raised() from problem
        engine = session.engine
        groups = {"control_groups": engine.control_groups} if engine.control_groups else {}
        log.info("engine started", engine_pid=engine.pid, command=" ".join(without_secrets(engine.command)), **groups)
        return session


def _ordered(order: CheckModel | StartEngine) -> ModelSpec:
    """Return the spec as this worker runs it: on its node, with its files, on the device of this one of several engines."""
    spec = with_backend(order.spec, order.backend)
    if order.paths:
        from protocol.models.node_paths import localized  # noqa: PLC0415 - only servers with a cluster need it

        spec = localized(spec, order.paths)
    return structs.replace(spec, devices=[order.device]) if order.device else spec
