"""Carries out the effects that the scheduler decided on: messages, answers, processes, downloads, log lines.

An effect that raises is logged and counted, and the others are carried out anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar, assert_never

from msgspec import Struct, structs

from protocol.messages.engines import CheckModel, SetRequestRules, StartEngine
from protocol.messages.work import Refused, Run
from protocol.models.memory import EngineDevice
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from supervisor.bus.grant_notices import GrantNotices
from supervisor.bus.sockets import SupervisorBus
from supervisor.bus.worker_barrier import WorkerBarrier
from supervisor.internal_errors import InternalErrors
from supervisor.models.registry import ModelRegistry
from supervisor.persistence.server_record import ServerRecord
from supervisor.processes.worker_processes import WorkerProcesses
from supervisor.runtime.internal_calls import InternalCalls
from supervisor.scheduler.effects import (
    AnswerCall,
    Effect,
    FetchFiles,
    FetchModel,
    ForgetModel,
    KillAfter,
    KillWorker,
    LogDecision,
    NoteDeath,
    NotifyGrant,
    RequestResources,
    SendMessage,
    SpawnWorker,
)

M = TypeVar("M", StartEngine, CheckModel)

log = logs.get_logger()


class NodeEffects(Protocol):
    """What effects do on other nodes than the head: :class:`supervisor.lifecycle.remote_nodes.RemoteNodes`."""

    def fetch_files(self, model: str, spec: ModelSpec, node: str) -> None:
        """Bring the files of a model to a node."""

    def paths_at(self, node: str, spec: ModelSpec) -> Mapping[str, str]:
        """Return path on the head → path on the node, for the files of a model."""

    def devices_at(self, node: str, use: Callable[[list[EngineDevice]], None]) -> None:
        """Call ``use`` with the devices of a node that engines may compute on, once they are known."""

    def read_body(self, file: str, use: Callable[[bytes | Exception], None]) -> None:
        """Call ``use`` with the body of a request that a gateway has put into a file, or with the OSError that says why not."""

    def request_resources(self, bundles: Sequence[Mapping[str, float]]) -> None:
        """Ask the cluster engine for further nodes."""


class EffectExecutor:
    """Carries out effects in their order. It decides nothing."""

    def __init__(
        self,
        loop: Loop,
        bus: SupervisorBus,
        workers: WorkerProcesses,
        models: ModelRegistry,
        grant_notices: GrantNotices,
        internal_calls: InternalCalls,
        errors: InternalErrors,
        answer: Callable[[str, int, object], None],
        barrier: WorkerBarrier,
        record: ServerRecord,
        fetch: Callable[[str], None],
        with_devices: Callable[[Callable[[list[EngineDevice]], None]], None],
        nodes: NodeEffects,
    ) -> None:
        """``answer(peer, number, report)`` answers the call of a gateway. ``fetch`` downloads a model. ``with_devices`` calls with those of engines.

        ``barrier`` waits for what a worker has to read first.

        Messages and answers to peer ``""`` go to ``internal_calls``.
        """
        self._loop, self._bus, self._workers, self._models = loop, bus, workers, models
        self._grant_notices, self._internal_calls, self._errors = grant_notices, internal_calls, errors
        self._answer, self._barrier, self._record, self._fetch = answer, barrier, record, fetch
        self._with_devices, self._nodes = with_devices, nodes
        self._held: dict[str, deque[SendMessage]] = {}
        """Worker on another node → what it gets after the request whose body is being read."""

    def execute(self, effects: Iterable[Effect]) -> None:
        """Carry out effects of the scheduler."""
        for effect in effects:
            try:
                self._execute(effect)
            except Exception as problem:  # noqa: BLE001 - the other effects are carried out anyway
                self._errors.failure_of(problem, effect=type(effect).__name__)

    def _execute(self, effect: Effect) -> None:  # noqa: C901, PLR0912 - one case for each effect
        match effect:
            case SendMessage(peer, message, payload):
                if peer in self._held:
                    self._held[peer].append(effect)
                else:
                    self._send(peer, message, payload)
            case NotifyGrant(gateway, grant):
                self._grant_notices.add(gateway, grant)
            case AnswerCall(peer, number, report, after):
                self._barrier.wait([after] if after else [], partial(self._report, peer, number, report))
            case SpawnWorker(worker, node):
                self._workers.start(worker, node)
            case KillWorker(worker):
                self._workers.kill(worker)
            case KillAfter(worker, seconds):
                self._loop.call_later(seconds, partial(self._workers.kill, worker))
            case FetchModel(model):
                self._fetch(model)
            case FetchFiles(model, spec, node):
                self._nodes.fetch_files(model, spec, node)
            case RequestResources(bundles):
                self._nodes.request_resources(bundles)
            case ForgetModel(model):
                self._models.adopted.forget(model)
            case NoteDeath(model, failure):
                self._record.engine_died(model, failure)
            case LogDecision(level, event, fields):
                getattr(log, level)(event, **fields)
            case _:
                assert_never(effect)

    def _check(self, worker: str, message: CheckModel) -> None:
        node, send = self._workers.node_of(worker), partial(self._send_check, worker, self._with_paths(worker, message))
        if node == HEAD:
            self._with_devices(send)
        else:
            self._nodes.devices_at(node, send)

    def _send_check(self, worker: str, message: CheckModel, devices: list[EngineDevice]) -> None:
        """Let a worker check a model, which needs the devices: without them, all of the model would seem to be on the host."""
        if worker in self._workers.names():  # it may have ended meanwhile
            self._bus.send(worker, structs.replace(message, devices=devices))

    def _send(self, peer: str, message: Struct, payload: bytes) -> None:
        if peer:
            if isinstance(message, Run):
                if message.spool and self._workers.node_of(peer) != HEAD:
                    self._held[peer] = deque()
                    self._nodes.read_body(message.spool, partial(self._body_read, peer, message))
                    return
            elif isinstance(message, StartEngine):
                rules = self._models.configuration.request_rules(message.spec)
                self._bus.send(peer, SetRequestRules(rules))
                message = self._with_paths(peer, message)
            elif isinstance(message, CheckModel):
                self._check(peer, message)
                return
            self._bus.send(peer, message, payload)
        elif isinstance(message, Refused):
            self._internal_calls.end(message.number, message.failure)

    def _with_paths(self, worker: str, message: M) -> M:
        """Return a message with the paths of the worker's node, unless that is the head."""
        node = self._workers.node_of(worker)
        paths = self._nodes.paths_at(node, message.spec) if node != HEAD else {}
        return structs.replace(message, paths=dict(paths)) if paths else message

    def _body_read(self, worker: str, run: Run, body: bytes | Exception) -> None:
        """Send a request with its body, which a worker on another node cannot read from the file, and what was to come after it."""
        if isinstance(body, Exception):  # the worker will say so to the gateway
            log.warning("the file with a request's body cannot be read", request_id=run.label, reason=str(body))
            self._bus.send(worker, run)
        else:
            self._bus.send(worker, structs.replace(run, spool=""), body)
        held = self._held.pop(worker)
        while held:
            if worker in self._held:  # another request whose body is being read
                self._held[worker].extend(held)
                return
            self.execute([held.popleft()])

    def _report(self, peer: str, number: int, report: object) -> None:
        if peer:
            self._answer(peer, number, report)
        else:
            self._internal_calls.end(number, report)
