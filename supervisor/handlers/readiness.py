"""Calls about whether the server takes requests: drain, undrain, readiness."""

from __future__ import annotations

from collections.abc import Callable

from protocol.failures import Code, Failure, printable
from protocol.messages.readiness import (
    AwaitedModel,
    DrainReport,
    GetDrain,
    GetReadiness,
    ReadinessReport,
    SetDrain,
)
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.peer_registry import PeerRegistry
from supervisor.bus.sockets import SupervisorBus
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.runtime.gateway_calls import GatewayCalls
from supervisor.runtime.handler_table import Handler
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.view import SchedulerView

log = logs.get_logger()


class ReadinessCalls:
    """Answers them, and tells all gateways when the answer has changed."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        peers: PeerRegistry,
        models: ModelRegistry,
        view: SchedulerView,
        record: ServerRecord,
        calls: GatewayCalls,
        awaited: Callable[[], list[AwaitedModel]],
        reserved: Callable[[], int],
    ) -> None:
        """``awaited`` returns the models for the start that are neither loaded nor have failed for good.

        ``reserved`` returns how many accepted requests are still to come from gateways.
        """
        self._loop, self._bus, self._peers, self._models, self._view = loop, bus, peers, models, view
        self._record, self._calls, self._awaited, self._reserved = record, calls, awaited, reserved

    def handlers(self) -> dict[type, Handler]:
        """Return the handlers of these messages."""
        return {SetDrain: self._set_drain, GetDrain: self._get_drain, GetReadiness: self._get_readiness}

    def started(self) -> None:
        """Note that each model for the start was loaded or has failed for good."""
        self._record.ready = True
        self._tell_gateways()

    def _set_drain(self, peer: str, call: SetDrain, _payload: bytes) -> None:
        if call.drained != self._record.drained:
            fields = {"running": self._view.running, "queued": self._view.queued}
            log.info("server drained" if call.drained else "server undrained", **fields)
            self._record.set_drained(call.drained)
            self._tell_gateways()
        self._report_drain(peer, call.number)

    def _get_drain(self, peer: str, call: GetDrain, _payload: bytes) -> None:
        self._report_drain(peer, call.number)

    def _report_drain(self, peer: str, number: int) -> None:
        report = DrainReport(self._record.drained, self._view.running, self._view.queued + self._reserved())
        self._calls.answer(peer, number, report)

    def _get_readiness(self, peer: str, call: GetReadiness, _payload: bytes) -> None:
        awaited = self._awaited_model(call.model) if call.model else self._awaited()
        ready = not awaited if call.model else self._record.ready
        self._calls.answer(peer, call.number, ReadinessReport(ready, awaited))

    def _awaited_model(self, name: str) -> list[AwaitedModel]:
        """Return the model, unless its engine answers. Raises ``model_not_found``, which names no other model.

        A probe has no key.
        """
        entry = self._models.find(name)
        if entry is None:
            raise Failure(Code.MODEL_NOT_FOUND, f"Model {printable(name)} not found", param="model").raised()
        model = self._view.model(entry.name)
        if model is not None and model.serves:
            return []
        state = model.state if model is not None else ModelState.ABSENT
        failures = self._record.failed_at_start
        failures |= {each.model: each.failure for each in self._view.failed_models(self._loop.now())}
        failure = failures.get(entry.name)
        return [AwaitedModel(entry.name, state.value, failure.message if failure is not None else "")]

    def _tell_gateways(self) -> None:
        for gateway in self._peers.of("gateway"):
            self._bus.send(gateway, self._record.readiness)
