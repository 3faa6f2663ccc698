"""The scheduler's state: everything loaded, running and waiting, and the effects that are still to be carried out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.peers import Shutdown
from protocol.messages.work import Caller, Refused
from protocol.models.recipes import ModelSpec, OptionValue
from supervisor.metrics.server_metrics import ServerMetrics
from supervisor.scheduler.backoff import Backoff, BackoffPolicy, FailedChecks
from supervisor.scheduler.crash_record import CrashRecord
from supervisor.scheduler.effects import Effect, KillAfter, KillWorker, SendMessage
from supervisor.scheduler.policy import FixedPolicies, PolicyOverrides, PolicySource
from supervisor.scheduler.scheduled_model import NEVER, ScheduledModel, ScheduledWorker
from supervisor.scheduler.worker_states import WorkerEvent

MAX_PAST_USES: Final = 256
"""For how many models that are not loaded the time of last use is remembered."""
_STOP_GRACE_S: Final = 5.0


class SchedulerLimits(NamedTuple):
    """How much may be loaded and may wait. Sizes in bytes, times in seconds."""

    models: int = 4
    queue_requests: int = 64
    queue_bytes: int = 64 * 1024 * 1024
    grace: float = 30.0
    restarts: BackoffPolicy = BackoffPolicy()
    spares: int = 1
    hello_timeout: float = 20.0
    """How long a worker process may take to report. On a loaded machine, Python alone takes seconds."""
    verbose: bool = False
    """Whether every grant is logged."""


class ModelTarget(NamedTuple):
    """The model that a request or load names. ``spec`` is None while the model is not on this machine.

    ``asked``: what a load asks for besides options. ``any``: however it is loaded. ``options``: what a load asks for
    while there is no spec. ``fallback``: what it is loaded with if ``spec`` fails. ``provisional``: nothing knew the
    model before this load.
    """

    name: str
    type: str
    spec: ModelSpec | None
    asked: PolicyOverrides = PolicyOverrides()
    any: bool = False
    options: Mapping[str, OptionValue] = {}
    provisional: bool = False
    fallback: ModelSpec | None = None


class SchedulerState:
    """What the scheduler knows, and the effects that are still to be carried out."""

    def __init__(
        self,
        limits: SchedulerLimits,
        new_worker: Callable[[], str],
        metrics: ServerMetrics | None = None,
        policies: PolicySource | None = None,
    ) -> None:
        """``new_worker`` names the next worker process; ``metrics`` count what the scheduler does."""
        self.limits = limits
        self.policies: PolicySource = policies or FixedPolicies()
        self.new_worker = new_worker
        self.metrics = metrics or ServerMetrics()
        self.models: dict[str, ScheduledModel] = {}
        self.workers: dict[str, ScheduledWorker] = {}
        self.closing = False
        self.memory = 0
        """Bytes of memory free at the last check, 0 if unknown."""
        self.counters: dict[str, int] = {}
        self.past_use: dict[str, float] = {}
        """The time of last use of models that are otherwise forgotten."""
        self.spawn_backoff = Backoff(limits.restarts)
        """Failures of worker processes to start at all."""
        self.failed_checks = FailedChecks(limits.restarts)
        self.crashes = CrashRecord()
        self.spawn_problem: Failure | None = None
        """Why worker processes do not start, until one does."""
        self.order = itertools.count(1)
        """The order of arrival of everything that may have to wait."""
        self.settled = False
        """Whether nothing waits and nothing moves, so that requests and their ends need no :func:`reconcile`."""
        self.ended_before: dict[RequestKey, str] = {}
        """Attempt → its worker, for attempts that ended before this supervisor took over, if their gateway may not know it."""
        self._out: list[Effect] = []

    @property
    def busy(self) -> int:
        """Slots in use, of all models."""
        return sum(model.busy for model in self.models.values())

    @property
    def running(self) -> int:
        """Attempts that engines are working on, including reads, of all models."""
        return sum(len(model.grants) for model in self.models.values())

    @property
    def queued(self) -> int:
        """Requests that wait, for all models."""
        return sum(len(model.queue) for model in self.models.values())

    def requests_of_key(self, key: str) -> int:
        """Return how many requests of an API key wait or run, by its name."""
        return sum(
            model.queue.count_of(key) + sum(_is_of_key(grant.caller, key) for grant in model.grants.values())
            for model in self.models.values()
        )

    def promised_tokens(self, key: str) -> int:
        """Return how many tokens the waiting and running requests of an API key may generate, as their clients asked."""
        callers = (grant.caller for model in self.models.values() for grant in model.grants.values())
        running = sum(caller.max_tokens for caller in callers if caller is not None and caller.key == key)
        return running + sum(model.queue.promised_to(key) for model in self.models.values())

    def workers_of_key(self, key: str) -> list[str]:
        """Return the workers that run requests of an API key."""
        return [
            model.process.worker
            for model in self.models.values()
            if model.process and any(_is_of_key(grant.caller, key) for grant in model.grants.values())
        ]

    def attempts_of_gateway(self, gateway: str) -> set[RequestKey]:
        """Return the attempts of a gateway that wait or run."""
        return {
            key
            for model in self.models.values()
            for key in (*model.grants, *(waiting.key for waiting in model.queue))
            if key.gateway == gateway
        }

    def knows_attempt(self, key: RequestKey) -> bool:
        """Return whether an attempt waits, runs, or had ended before this supervisor took over."""
        if key in self.ended_before:
            return True
        return any(key in model.grants or model.queue.has(key) for model in self.models.values())

    def latest(self, serves: Callable[[ScheduledModel], bool]) -> ScheduledModel | None:
        """Return the model used last, among those that have an engine and pass ``serves``."""
        loaded = [model for model in self.models.values() if model.process and model.process.serves and serves(model)]
        return max(loaded, key=lambda model: model.last_use, default=None)

    def used(self) -> list[str]:
        """Return all models that were ever used, loaded or not, last used first."""
        use = self.past_use | {model.name: model.last_use for model in self.models.values()}
        return sorted((name for name in use if use[name] != NEVER), key=use.__getitem__, reverse=True)

    def forget_use(self, name: str) -> None:
        """Forget that a model was used: another one may get its name."""
        self.past_use.pop(name, None)
        if name in self.models:
            self.models[name].last_use = NEVER

    def remember_use(self, model: ScheduledModel) -> None:
        """Remember when a model that is about to be forgotten was last used."""
        if model.last_use != NEVER:
            self.past_use[model.name] = model.last_use
        while len(self.past_use) > MAX_PAST_USES:
            del self.past_use[min(self.past_use, key=self.past_use.__getitem__)]

    def effects(self) -> list[Effect]:
        """Return the effects since the last call, in order."""
        out, self._out = self._out, []
        return out

    def emit(self, *effects: Effect) -> None:
        """Request an effect."""
        self._out.extend(effects)

    def count(self, what: str, number: int = 1) -> None:
        """Count something that an operator may ask about."""
        self.counters[what] = self.counters.get(what, 0) + number

    def refuse(self, key: RequestKey, failure: Failure) -> None:
        """End an attempt (or a call, with attempt 0) before it reached a worker."""
        self.count(f"refused_{failure.code}")
        self.metrics.attempt_refused(failure.code)
        self.emit(SendMessage(key.gateway, Refused(key.number, key.attempt, failure)))

    def stop_worker(self, process: ScheduledWorker, *, reason: str = "") -> None:
        """Tell a worker to leave, and kill it if it does not."""
        self.emit(SendMessage(process.worker, Shutdown(0.0, reason)))
        self.expect_end(process)

    def expect_end(self, process: ScheduledWorker) -> None:
        """Kill a worker that was told to leave, if it does not."""
        process.transition(WorkerEvent.STOP)
        seconds = _STOP_GRACE_S + (process.facts.leave_seconds if process.facts else 0.0)
        self.emit(KillAfter(process.worker, seconds))

    def kill_worker(self, process: ScheduledWorker) -> None:
        """End a worker that reads no messages yet."""
        process.transition(WorkerEvent.STOP)
        self.emit(KillWorker(process.worker))


def _is_of_key(caller: Caller | None, key: str) -> bool:
    return caller is not None and caller.key == key
