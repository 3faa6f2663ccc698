"""The scheduler's board: all that is loaded, running and waiting, and the few acts that change it. No I/O."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.admin import Loaded, OptionValue
from protocol.messages.peers import Shutdown
from protocol.messages.work import GrantedAttempt as Told
from protocol.messages.work import Refused, Run
from protocol.models.recipes import ModelSpec
from supervisor.scheduler.backoff import Backoff, BackoffPolicy
from supervisor.scheduler.effects import (
    AnswerCall,
    Effect,
    FetchModel,
    ForgetModel,
    KillAfter,
    KillWorker,
    LogDecision,
    NotifyGrant,
    SendMessage,
)
from supervisor.scheduler.scheduled_model import (
    NEVER,
    PendingCall,
    QueuedRequest,
    ScheduledModel,
    ScheduledWorker,
    SlotGrant,
    with_model,
)
from supervisor.scheduler.worker_lifecycle import WorkerEvent, WorkerState

MAX_PAST_USES: Final = 256
"""Models that are not loaded of which the time of their last use is remembered."""


class SchedulerLimits(NamedTuple):
    """How much may be loaded and may wait. Sizes in bytes, times in seconds."""

    models: int = 4
    queue_requests: int = 64
    queue_bytes: int = 64 * 1024 * 1024
    grace: float = 30.0
    restarts: BackoffPolicy = BackoffPolicy()
    spares: int = 1
    hello_timeout: float = 20.0
    """How long a worker process may take to report; on a loaded machine Python alone takes seconds."""
    verbose: bool = False
    """Whether every grant is worth a line in the log."""


class ModelTarget(NamedTuple):
    """What a request's model name came to: ``spec`` is None while the model is not on this machine.

    ``pinned`` is what a load asks for, None if it says nothing about that; ``any``: however it is loaded.
    ``options``: what a load asks for while there is no spec.  ``provisional``: nothing knew the model before this load.
    """

    name: str
    type: str
    spec: ModelSpec | None
    pinned: bool | None = None
    any: bool = False
    options: Mapping[str, OptionValue] = {}
    provisional: bool = False


class SchedulerState:
    """What the scheduler knows, and what it wants done: :meth:`effects` hands that out, once."""

    def __init__(self, limits: SchedulerLimits, new_worker: Callable[[], str]) -> None:
        """``new_worker`` names the next worker process."""
        self.limits = limits
        self.new_worker = new_worker
        self.models: dict[str, ScheduledModel] = {}
        self.workers: dict[str, ScheduledWorker] = {}
        self.closing = False
        self.memory = 0
        """Bytes of memory free at the last check, 0 if unknown."""
        self.counters: dict[str, int] = {}
        self.past_use: dict[str, float] = {}
        """When models that have no place any more were used last."""
        self.spawn_backoff = Backoff(limits.restarts)
        """How well worker processes start at all."""
        self.spawn_problem: Failure | None = None
        """Why worker processes do not start, until one does."""
        self.order = itertools.count(1)
        """The order of arrival of everything that may have to wait."""
        self.settled = False
        """Whether nobody waits and nothing moves, so that requests and their ends need no look at the whole board."""
        self._out: list[Effect] = []

    def model(self, target: ModelTarget, *, load: bool = False) -> ScheduledModel:
        """Return what is known of a model, made if need be.

        A new spec only counts while nothing is loaded, and a request's only while nothing else waits: it does not
        take back the options of a load.
        """
        model = self.models.get(target.name)
        if model is None:
            model = self.models[target.name] = ScheduledModel(
                target.name, target.type, self.limits.restarts, provisional=target.provisional
            )
            model.last_use = self.past_use.pop(target.name, NEVER)
        if model.process is None and target.spec is not None:
            begins = model.order is None and not model.wanted
            if begins:
                model.pinned = False
            if begins or load or model.spec is None:
                model.spec = target.spec
                model.pinned = model.pinned or target.spec.pinned
        return model

    @property
    def granted(self) -> int:
        """Slots granted or lent in the whole house."""
        return sum(model.busy for model in self.models.values())

    @property
    def running(self) -> int:
        """Slots known to be in use in the whole house."""
        return sum(model.running for model in self.models.values())

    @property
    def queued(self) -> int:
        """Requests that wait in the whole house."""
        return sum(len(model.queue) for model in self.models.values())

    def latest(self, serves: Callable[[ScheduledModel], bool]) -> ScheduledModel | None:
        """Return the place used last, among those that have an engine and pass ``serves``."""
        loaded = [model for model in self.models.values() if model.process and model.process.serves and serves(model)]
        return max(loaded, key=lambda model: model.last_use, default=None)

    def used(self) -> list[str]:
        """Return the models that were ever used, whether they are still loaded or not, the one used last first."""
        use = self.past_use | {model.name: model.last_use for model in self.models.values()}
        return sorted((name for name in use if use[name] != NEVER), key=use.__getitem__, reverse=True)

    def forget_use(self, name: str) -> None:
        """Forget that a model was used: what will have its name is another one."""
        self.past_use.pop(name, None)
        if name in self.models:
            self.models[name].last_use = NEVER

    def effects(self) -> list[Effect]:
        """Hand out what is to be done, in order, and forget it."""
        out, self._out = self._out, []
        return out

    def emit(self, *effects: Effect) -> None:
        """Want something done."""
        self._out.extend(effects)

    def count(self, what: str) -> None:
        """Count something that an operator may ask about."""
        self.counters[what] = self.counters.get(what, 0) + 1

    def refuse(self, key: RequestKey, failure: Failure) -> None:
        """End an attempt (or a call, with attempt 0) before it reached a worker."""
        self.count(f"refused_{failure.code}")
        self.emit(SendMessage(key.gateway, Refused(key.number, key.attempt, failure)))

    def grant(
        self, model: ScheduledModel, process: ScheduledWorker, waiting: QueuedRequest, weight: int, now: float
    ) -> None:
        """Give ``weight`` slots of a seat to a request and send it there."""
        self.count("grants")
        model.grants[waiting.key] = SlotGrant(weight, now, waiting.order)
        model.last_use = now
        if self.limits.verbose:
            told = {"request_id": waiting.ask.label, "model": model.name, "worker": process.worker, "slots": weight}
            self.emit(LogDecision("debug", "granted", {**told, "waited_s": round(now - waiting.since, 4)}))
        self.run(model, process, waiting)

    def run(self, model: ScheduledModel, process: ScheduledWorker, waiting: QueuedRequest) -> None:
        """Send a request to a seat, and tell its gateway where it is."""
        gateway, number, attempt = waiting.key
        ask = waiting.ask
        run = Run(
            gateway, number, attempt, ask.model or model.name, ask.endpoint, ask.label, ask.stream, ask.spool, ask.query
        )
        self.emit(
            SendMessage(process.worker, run, waiting.payload),
            NotifyGrant(gateway, Told(number, attempt, process.worker, model.name)),
        )

    def fetch(self, model: ScheduledModel) -> None:
        """Want the model's files."""
        if not model.fetching:
            model.fetching = True
            self.emit(FetchModel(model.name))

    def refuse_waiting(self, model: ScheduledModel, failure: Failure) -> None:
        """Refuse everybody who waits for this model."""
        failure = with_model(model, failure)
        for waiting in model.take_all():
            self.refuse(waiting.key, failure)
        self.refuse_loads(model, failure)
        if model.provisional and model.unused():
            self.forget_model(model)

    def refuse_loads(self, model: ScheduledModel, failure: Failure) -> None:
        """Refuse everybody who asked for a load of this model; requests that wait for it wait on."""
        self.refuse_callers(model.loaders, with_model(model, failure))
        model.loaders.clear()
        model.reload_spec = model.previous_spec = None

    def refuse_callers(self, callers: list[PendingCall], failure: Failure) -> None:
        """Tell those who asked for a load that it will not be."""
        for caller in callers:
            self.refuse(RequestKey(caller.peer, caller.number, 0), failure)

    def answer_loaded(self, model: ScheduledModel, callers: list[PendingCall]) -> None:
        """Tell those who asked for the load that it is there."""
        spec = model.spec
        if spec is not None:
            for caller in callers:
                self.emit(AnswerCall(caller.peer, caller.number, Loaded(model.name, spec.checkpoint, spec.recipe)))

    def release(self, model: ScheduledModel) -> None:
        """Take the worker back that only checks a model, or has: a spare again, unless its check may still take long."""
        process = model.process
        if process is None or process.counts_as_loaded:
            return
        process.model = model.process = None
        if process.state is WorkerState.CHECKED:
            process.transition(WorkerEvent.RELEASE)
        else:
            self.stop_worker(process)

    def unload_reason(self, model: ScheduledModel) -> str:
        """Return why a model's engine is to end, for the log."""
        if self.closing:
            return "the server stops"
        if model.unloaders:
            return "unload was asked for"
        if model.reload_spec:
            return "it is loaded again with other options"
        return "it works on for clients that are gone" if model.stuck and model.wanted else "it makes room"

    def forget_model(self, model: ScheduledModel) -> None:
        """Forget a model that is not used, with its failures."""
        self.models.pop(model.name, None)
        if model.last_use != NEVER:
            self.past_use[model.name] = model.last_use
            if len(self.past_use) > MAX_PAST_USES:
                del self.past_use[min(self.past_use, key=self.past_use.__getitem__)]
        if model.provisional:
            self.emit(ForgetModel(model.name))

    def stop_worker(self, process: ScheduledWorker, *, reason: str = "") -> None:
        """Tell a worker to leave; it is killed if it does not."""
        process.transition(WorkerEvent.STOP)
        self.emit(SendMessage(process.worker, Shutdown(0.0, reason)), KillAfter(process.worker, 5.0))

    def kill_worker(self, process: ScheduledWorker) -> None:
        """End a worker that nobody can tell anything yet."""
        process.transition(WorkerEvent.STOP)
        self.emit(KillWorker(process.worker))
