"""What simulated workers and gateways know about themselves, whatever a scheduler believes; the successor of a dead supervisor asks them.

:class:`ObservedScheduler` lets them see what they said themselves: each event of a scheduler is a message of a peer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.engines import EngineReady, StartEngine
from protocol.messages.models import PolicyOverrides
from protocol.messages.peers import Shutdown
from protocol.messages.recovery import (
    AttemptSnapshot,
    GatewaySnapshot,
    RememberState,
    RequestSnapshot,
    WorkerSnapshot,
)
from protocol.messages.work import AttemptEnded, Run, SubmitRequest
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from supervisor.scheduler.inputs import ModelTarget
from supervisor.scheduler.scheduler import Scheduler


class HeldAttempt(NamedTuple):
    """An attempt that a worker holds."""

    weight: int
    began: float
    abandoned: bool = False


class WorkerTruth:
    """What one worker process does."""

    def __init__(self) -> None:
        self.connected = False
        self.state = WorkerState.SPARE
        self.spec: ModelSpec | None = None
        self.facts: EngineReady | None = None
        self.attempts: dict[RequestKey, HeldAttempt] = {}
        self.ended: list[RequestKey] = []
        self.last_use = 0.0
        self.remembered = PolicyOverrides()
        self.replica = 1

    def receive(self, message: object, now: float) -> None:
        match message:
            case StartEngine(spec):
                assert self.state in (WorkerState.SPARE, WorkerState.ENGINE_LOST), "an engine was started twice"
                self.state, self.spec, self.replica = WorkerState.LOADING, spec, message.replica
            case Run(gateway, number, attempt):
                assert self.state is WorkerState.READY, "a request was sent to an engine that is not ready"
                key = RequestKey(gateway, number, attempt)
                assert key not in self.attempts, "a request was sent twice"
                self.attempts[key] = HeldAttempt(message.weight, now)
                self.last_use = max(self.last_use, now if message.weight else 0.0)
            case RememberState(remembered):
                self.remembered = remembered
            case Shutdown():
                self.state = WorkerState.LEAVING

    def ready(self, facts: EngineReady, now: float) -> None:
        if self.state is WorkerState.LOADING:
            self.state, self.facts, self.last_use = WorkerState.READY, facts, now

    def load_fails(self) -> None:
        if self.state is WorkerState.LOADING:
            self.state, self.spec = WorkerState.SPARE, None

    def end(self, key: RequestKey, now: float, code: str = "") -> None:
        del self.attempts[key]
        self.last_use = now
        if code != Code.RETURNED:
            self.ended.append(key)

    def lose_engine(self) -> None:
        self.attempts.clear()
        if self.state is WorkerState.READY:
            self.state, self.facts = WorkerState.ENGINE_LOST, None

    def snapshot(self, now: float) -> WorkerSnapshot:
        return WorkerSnapshot(
            self.state,
            self.spec,
            self.facts,
            [
                AttemptSnapshot(*key, each.weight, now - each.began, each.abandoned)
                for key, each in self.attempts.items()
            ],
            [AttemptEnded(*key) for key in self.ended],
            now - self.last_use if self.last_use else None,
            self.remembered,
            replica=self.replica,
        )


class Waiting(NamedTuple):
    """A request that a gateway waits for."""

    request: SubmitRequest
    target: ModelTarget
    since: float


class GatewayTruth:
    """What the gateways wait for."""

    def __init__(self) -> None:
        self.waiting: dict[RequestKey, Waiting] = {}
        self.granted: dict[RequestKey, str] = {}
        """Attempt → the worker that ``Granted`` named."""
        self.calls: dict[tuple[str, int], Callable[[Scheduler, float], object]] = {}
        """Open calls: how to make them again."""
        self._since: dict[tuple[str, int], float] = {}
        self._arrivals = itertools.count(1)

    def submitted(self, key: RequestKey, request: SubmitRequest, target: ModelTarget, now: float) -> None:
        since = self._since.setdefault((key.gateway, key.number), now + 1e-9 * next(self._arrivals))
        self.waiting.setdefault(key, Waiting(request, target, since))

    def note_grant(self, key: RequestKey, worker: str) -> None:
        if key in self.waiting:
            self.granted[key] = worker

    def end(self, key: RequestKey) -> None:
        self.waiting.pop(key, None)
        self.granted.pop(key, None)

    def gateway_gone(self, gateway: str) -> None:
        for key in [key for key in self.waiting if key.gateway == gateway]:
            self.end(key)
        self.calls = {call: again for call, again in self.calls.items() if call[0] != gateway}

    def snapshots(self, now: float) -> dict[str, GatewaySnapshot]:
        requests: dict[str, list[RequestSnapshot]] = {"g1": [], "g2": []}
        for key, asked in self.waiting.items():
            worker = self.granted.get(key, "")
            requests[key.gateway].append(
                RequestSnapshot(key.number, key.attempt, now - asked.since, worker, asked.request.caller)
            )
        return {gateway: GatewaySnapshot(of) for gateway, of in requests.items()}


class ObservedScheduler(Scheduler):
    """A scheduler whose events are noted by the peers that they come from."""

    workers_truth: dict[str, WorkerTruth]
    gateways: GatewayTruth

    def request_submitted(
        self, key: RequestKey, request: SubmitRequest, payload: bytes, target: ModelTarget, now: float
    ) -> None:
        self.gateways.submitted(key, request, target, now)
        super().request_submitted(key, request, payload, target, now)

    def request_cancelled(self, key: RequestKey, reason: str) -> None:
        self.gateways.end(key)
        super().request_cancelled(key, reason)

    def gateway_gone(self, gateway: str) -> None:
        self.gateways.gateway_gone(gateway)
        super().gateway_gone(gateway)

    def load_requested(self, peer: str, number: int, target: ModelTarget, now: float) -> None:
        self.gateways.calls[peer, number] = lambda other, at: other.load_requested(peer, number, target, at)
        super().load_requested(peer, number, target, now)

    def plan_requested(self, peer: str, number: int, spec: ModelSpec) -> None:
        self.gateways.calls[peer, number] = lambda other, _at: other.plan_requested(peer, number, spec)
        super().plan_requested(peer, number, spec)

    def unload_requested(self, peer: str, number: int, name: str) -> bool:
        self.gateways.calls[peer, number] = lambda other, _at: other.unload_requested(peer, number, name)
        done = super().unload_requested(peer, number, name)
        if not done:
            del self.gateways.calls[peer, number]
        return done

    def overrides_requested(self, peer: str, number: int, name: str, asked: PolicyOverrides) -> bool:
        self.gateways.calls[peer, number] = lambda other, _at: other.overrides_requested(peer, number, name, asked)
        done = super().overrides_requested(peer, number, name, asked)
        if not done:
            del self.gateways.calls[peer, number]
        return done

    def call_abandoned(self, peer: str, number: int) -> None:
        self.gateways.calls.pop((peer, number), None)
        super().call_abandoned(peer, number)

    def worker_reported(self, worker: str) -> None:
        self.workers_truth[worker].connected = True
        super().worker_reported(worker)

    def engine_ready(self, worker: str, facts: EngineReady, now: float) -> None:
        self.workers_truth[worker].ready(facts, now)
        super().engine_ready(worker, facts, now)

    def load_failed(self, worker: str, *details: Any) -> None:
        self.workers_truth[worker].load_fails()
        super().load_failed(worker, *details)

    def engine_died(self, worker: str, *details: Any, **more: Any) -> None:
        self.workers_truth[worker].lose_engine()
        super().engine_died(worker, *details, **more)

    def attempt_abandoned(self, worker: str, key: RequestKey) -> None:
        truth = self.workers_truth[worker]
        truth.attempts[key] = truth.attempts[key]._replace(abandoned=True)
        super().attempt_abandoned(worker, key)

    def attempt_ended(self, key: RequestKey, code: str, now: float, *more: Any, **details: Any) -> Any:
        truth = next((each for each in self.workers_truth.values() if key in each.attempts), None)
        if truth is not None:
            truth.end(key, now, code)
        if code != Code.RETURNED:
            self.gateways.end(key)
        return super().attempt_ended(key, code, now, *more, **details)
