"""The real scheduler with virtual nodes, workers and gateways. It is called as the supervisor calls it."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from protocol.failures import Code, Failure
from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.engines import CheckModel, EngineReady, StartEngine
from protocol.messages.peers import Shutdown
from protocol.messages.work import Cancel, Refused, Run, SubmitRequest
from protocol.models.memory import HOST, Capacity, MemoryEstimate, PlaceNeed
from protocol.models.nodes import HEAD, NodeFacts
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.runtime.decisions import RECONCILE_INTERVAL_S
from supervisor.scheduler.effects import Effect, KillWorker, SendMessage, SpawnWorker
from supervisor.scheduler.inputs import ModelTarget, SchedulerLimits
from supervisor.scheduler.scheduler import Scheduler
from tests.simulation.engines import CANCEL_S, CHECK_S, LEAVE_S, SLOTS, SPAWN_S, stream_times
from tests.simulation.measures import SETTLED, RequestTally, Stopwatch
from tests.simulation.paper_clock import PaperClock
from tests.simulation.traffic import STEADY_KEYS, Traffic, VirtualRequest
from tests.simulation.virtual_parts import NO_FAULTS, ClusterSize, Faults, VirtualAttempt, VirtualWorker

GATEWAYS: Final = 8
LIMITED_KEYS: Final = STEADY_KEYS[:3]
"""Keys with a limit of concurrent requests: for each of their requests, the supervisor asks how many are open."""


class VirtualCluster:
    """The nodes, workers and clients around the scheduler, while time passes."""

    def __init__(
        self,
        traffic: Traffic,
        size: ClusterSize,
        faults: Faults = NO_FAULTS,
        scheduler_type: type[Scheduler] = Scheduler,
    ) -> None:
        self.traffic, self.size, self.faults = traffic, size, faults
        self.clock, self.tally, self.watch = PaperClock(), RequestTally(), Stopwatch()
        self.models = {model.name: model for model in traffic.models}
        self.targets = {name: ModelTarget(name, "llm", model.spec) for name, model in self.models.items()}
        self.workers: dict[str, VirtualWorker] = {}
        self._on: defaultdict[str, dict[str, VirtualWorker]] = defaultdict(dict)
        """Node → its workers."""
        self.attempts: dict[int, VirtualAttempt] = {}
        """Request → its present attempt."""
        self._streams = 0
        self._draw = random.Random(traffic.seed + 1)
        names = itertools.count(1)
        limits = SchedulerLimits(models=size.models_of_node, queue_requests=1000, memory_reserve=0)
        metrics = ServerMetrics()
        self.scheduler = scheduler_type(limits, lambda: f"w{next(names)}", metrics=metrics)
        metrics.keep_series_while(lambda model: self.scheduler.view.serving(model) is not None)
        self.nodes = {HEAD, *(f"node{number:03}" for number in range(2, size.nodes + 1))}
        for node in sorted(self.nodes - {HEAD}):
            self._join(node)

    # ---- as the supervisor calls the scheduler -----------------------------------------------------------------------

    def _event(self, kind: str, happen: Callable[[], object], *, light: bool = False) -> None:
        """``light``: after it, a settled scheduler need not decide (:mod:`supervisor.runtime.messages`)."""
        begun = time.thread_time()
        happen()
        if light and self.scheduler.view.settled:
            kind = f"{kind}, {SETTLED}"
        else:
            for node in self.scheduler.view.wants_memory(self.clock.now):
                self._read_memory(node)
            self.scheduler.reconcile(self.clock.now)
        effects = self.scheduler.effects()
        self.watch.add(kind, time.thread_time() - begun)
        for effect in effects:
            self._carry_out(effect)

    def _tick(self) -> None:
        self._event("tick", lambda: None)
        self.clock.after(RECONCILE_INTERVAL_S, self._tick)

    def _join(self, node: str) -> None:
        self.nodes.add(node)
        self._event(
            "node", lambda: self.scheduler.node_joined(NodeFacts(node, memory=self.size.memory), self.clock.now)
        )

    def _read_memory(self, node: str) -> None:
        held = {name: worker.held for name, worker in self._on[node].items() if worker.held}
        free = self.size.memory - sum(each[HOST] for each in held.values())
        assert free >= 0, "more memory is taken than a node has"
        self.scheduler.memory_read(node, [Capacity(HOST, self.size.memory, free)], held, self.clock.now)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SpawnWorker(name, node):
                assert node in self.nodes, "a worker was started on a node that is gone"
                worker = self.workers[name] = self._on[node][name] = VirtualWorker(name, node)
                self._later(
                    SPAWN_S, worker, lambda: self._event("worker", partial(self.scheduler.worker_reported, name))
                )
            case SendMessage(peer, Refused(number, attempt, failure)):
                self._refused(RequestKey(peer, number, attempt), failure)
            case SendMessage(peer, message) if peer in self.workers:
                self._read_message(self.workers[peer], message)
            case KillWorker(name) if name in self.workers:
                self._later(0.0, self.workers[name], partial(self._leave, self.workers[name]))
            case _:
                pass

    # ---- clients -----------------------------------------------------------------------------------------------------

    def _expect_next(self, arrivals: Iterator[VirtualRequest]) -> None:
        arrival = next(arrivals, None)
        if arrival is not None:
            self.clock.after(arrival.at - self.clock.now, partial(self._arrive, arrival, arrivals))

    def _arrive(self, arrival: VirtualRequest, arrivals: Iterator[VirtualRequest]) -> None:
        self.tally.arrived(arrival.number, arrival.key)
        self._submit(arrival, attempt=1)
        if arrival.patience < math.inf:
            self.clock.after(arrival.patience, partial(self._hang_up, arrival.number))
        self._expect_next(arrivals)

    def _submit(self, arrival: VirtualRequest, attempt: int) -> None:
        key = RequestKey(f"g{arrival.number % GATEWAYS}", arrival.number, attempt)
        self.attempts[arrival.number] = VirtualAttempt(arrival, key, self.clock.now)
        caller = Caller(arrival.key, concurrent=1_000_000 if arrival.key in LIMITED_KEYS else 0)
        request = SubmitRequest(
            arrival.number,
            attempt,
            arrival.model,
            "chat/completions",
            f"request{arrival.number}",
            size=4 * arrival.prompt,
            stream=True,
            suspect=attempt > 1,
            caller=caller,
        )

        def happen() -> None:
            view = self.scheduler.view
            view.serving(arrival.model)
            if caller.concurrent:
                view.requests_of_key(caller.key)
            self.scheduler.request_submitted(key, request, b"", self.targets[arrival.model], self.clock.now)

        self._event("submit", happen, light=True)

    def _hang_up(self, number: int) -> None:
        attempt = self.attempts.get(number)
        if attempt is not None:
            if attempt.worker is None:
                self._end(attempt, "cancelled")
            self._event("cancel", lambda: self.scheduler.request_cancelled(attempt.key, "client gone"), light=True)

    def _refused(self, key: RequestKey, failure: Failure) -> None:
        attempt = self.attempts.get(key.number)
        if attempt is not None and attempt.key == key:
            self._end(attempt, f"refused: {failure.code}")

    def _end(self, attempt: VirtualAttempt, how: str) -> None:
        del self.attempts[attempt.key.number]
        self.tally.ended(attempt.key.number, how)

    # ---- workers -----------------------------------------------------------------------------------------------------

    def _later(self, seconds: float, worker: VirtualWorker, happen: Callable[[], object]) -> None:
        """Let something happen to a worker, unless it ends before."""
        self.clock.after(seconds, lambda: happen() if self.workers.get(worker.name) is worker else None)

    def _read_message(self, worker: VirtualWorker, message: object) -> None:
        match message:
            case CheckModel(spec):
                found = MemoryEstimate({HOST: PlaceNeed(self.models[spec.name].need)}, slots=SLOTS)
                checked = partial(self.scheduler.model_checked, worker.name, found)
                self._later(CHECK_S, worker, lambda: self._event("worker", checked))
            case StartEngine(spec, _, need):
                worker.held = dict(need)
                self._later(self.models[spec.name].load_s, worker, partial(self._become_ready, worker))
            case Run(gateway, number, attempt):
                self._run(worker, self.attempts[number], RequestKey(gateway, number, attempt))
            case Cancel(gateway, number, attempt):
                key = RequestKey(gateway, number, attempt)
                self._later(CANCEL_S, worker, lambda: self._stream_ends(worker, key, Code.CANCELLED))
            case Shutdown():
                self._later(LEAVE_S, worker, partial(self._leave, worker))

    def _become_ready(self, worker: VirtualWorker) -> None:
        worker.ready = True
        facts = EngineReady(SLOTS, 4096, 1, "", 0.1)
        self._event("worker", lambda: self.scheduler.engine_ready(worker.name, facts, self.clock.now))

    def _run(self, worker: VirtualWorker, attempt: VirtualAttempt, key: RequestKey) -> None:
        assert attempt.key == key, "an attempt was granted that had ended"
        assert attempt.worker is None, "an attempt was granted twice"
        assert worker.ready, "a request was sent to an engine that is not ready"
        worker.running[key], attempt.worker = attempt, worker
        assert len(worker.running) <= SLOTS, "more was granted than there are slots"
        self._streams += 1
        arrival, now = attempt.arrival, self.clock.now
        self.tally.granted(arrival.key, now - arrival.at, self._streams)
        times = stream_times(arrival.prompt, arrival.tokens, len(worker.running))
        attempt.first_token = now + times.first
        self._later(times.end, worker, lambda: self._stream_ends(worker, key, ""))

    def _stream_ends(self, worker: VirtualWorker, key: RequestKey, code: str) -> None:
        attempt = worker.running.pop(key, None)
        if attempt is None:  # cancelled
            return
        self._streams -= 1
        self._end(attempt, str(code) or "answered")
        tokens = attempt.arrival.prompt + attempt.arrival.tokens
        ended = partial(self.scheduler.attempt_ended, key, code, self.clock.now, tokens, attempt.arrival.tokens)
        self._event("end", ended, light=True)

    def _leave(self, worker: VirtualWorker) -> None:
        del self.workers[worker.name], self._on[worker.node][worker.name]
        lost = self._lose_streams(worker)
        failure = Failure(Code.WORKER_GONE, "it was told to leave")
        self._event("worker", lambda: self.scheduler.worker_gone(worker.name, failure, self.clock.now))
        self._retry(lost)

    def _lose_streams(self, worker: VirtualWorker) -> list[VirtualAttempt]:
        """End the streams of an engine that has sent tokens; return the attempts that have got none."""
        lost, worker.running = list(worker.running.values()), {}
        self._streams -= len(lost)
        broken = [attempt for attempt in lost if attempt.first_token <= self.clock.now]
        for attempt in broken:
            self._end(attempt, "broken")
        return [attempt for attempt in lost if attempt not in broken]

    def _retry(self, lost: list[VirtualAttempt]) -> None:
        for attempt in lost:
            self._submit(attempt.arrival, attempt.key.attempt + 1)
