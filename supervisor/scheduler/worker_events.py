"""What workers tell the scheduler: that they are there, what they found, that they or their engines are gone."""

from __future__ import annotations

from msgspec import structs

from protocol.failures import Failure
from protocol.messages.peers import EngineReady
from protocol.models.recipes import ModelSpec
from supervisor.scheduler import spare_workers
from supervisor.scheduler.effects import AnswerCall, LogDecision
from supervisor.scheduler.scheduled_model import RefusedReload, ScheduledModel, needs_new_engine, with_model
from supervisor.scheduler.state import SchedulerState
from supervisor.scheduler.worker_lifecycle import WorkerEvent, WorkerState


class WorkerEventHandlers(SchedulerState):
    """Events of workers."""

    def hello(self, worker: str) -> None:
        """A worker process is there and knows nothing yet."""
        process = self.workers[worker]
        if process.state is WorkerState.SPAWNED:  # else it was ended while it was on its way
            process.transition(WorkerEvent.HELLO)
            spare_workers.worker_reported(self)

    def checked(self, worker: str, need: int, available: int) -> None:
        """Nothing speaks against trying to load."""
        process = self.workers[worker]
        if process.state is not WorkerState.CHECKING:
            return
        process.transition(WorkerEvent.CHECKED)
        if process.model is not None:
            process.memory = max(need, process.model.memory)
        self.memory = available

    def ready(self, worker: str, facts: EngineReady, now: float) -> None:
        """The engine answers."""
        process = self.workers[worker]
        if process.state is not WorkerState.LOADING or process.model is None:
            return
        model = process.model
        process.transition(WorkerEvent.READY)
        process.facts = facts
        process.memory = model.memory = max(facts.rss, 0) or process.memory
        model.backoff.ready()
        model.provisional = False
        self.memory = max(1, self.memory - process.memory) if self.memory else 0
        model.wanted = True
        model.previous_spec = None
        model.last_use = now
        model.cutoff = next(self.order)
        self.count("loads")
        self.emit(LogDecision("info", "model ready", {"model": model.name, "worker": worker, **_log_fields(facts)}))
        spec = model.spec
        served = [caller for caller in model.loaders if not model.reload_spec or _satisfies(caller.spec, spec)]
        self.answer_loaded(model, served)
        model.loaders = [caller for caller in model.loaders if caller not in served]

    def load_failed(self, worker: str, failure: Failure, started: bool, now: float) -> None:
        """The check or the start did not succeed: everybody who waited is told why."""
        process = self.workers[worker]
        model = process.model
        if model is None or process.state not in (WorkerState.CHECKING, WorkerState.LOADING):
            return
        failure = with_model(model, failure)
        self.count("load_failures")
        back = model.previous_spec is not None and not self.closing
        if started or process.state is WorkerState.LOADING:
            process.transition(WorkerEvent.LOAD_FAILED)
            if not back and not model.provisional:
                model.backoff.load_failed(failure, now)
            pause = model.backoff.pause(now)
            self.stop_worker(process)
        else:
            process.transition(WorkerEvent.CHECK_FAILED)
            pause = self.limits.restarts.first
            model.wanted = False
        process.model = None
        model.process = None
        fields = {"model": model.name, "worker": worker, "code": failure.code, "reason": failure.message}
        if failure.detail:
            fields["detail"] = failure.detail
        level = "error" if failure.http_status >= 500 else "warning"
        if back:
            self.emit(LogDecision(level, "load failed, it keeps its former options", fields))
            self._restore_previous(model, failure, now)
            return
        self.emit(LogDecision(level, "load failed", {**fields, "retry_in": round(pause, 3)}))
        self.refuse_waiting(
            model, structs.replace(failure, retry_after=pause) if failure.http_status == 503 else failure
        )

    def _restore_previous(self, model: ScheduledModel, failure: Failure, now: float) -> None:
        """Only who asked for these options hears that they are none; who waits for the model waits on."""
        failed, wishes = model.spec, model.loaders
        refused = [caller for caller in wishes if caller.spec is not None and _satisfies(caller.spec, failed)]
        model.loaders = [caller for caller in wishes if caller not in refused]
        if model.reload_spec is not None:
            model.spec, model.reload_spec = model.reload_spec, None
        else:
            model.spec, model.previous_spec, model.pinned = model.previous_spec, None, model.previous_pinned
        model.wanted = True
        what = f"{failure.message}; it keeps its former options"
        pause = self.limits.restarts.most if failure.http_status == 503 else 0.0
        failure = structs.replace(failure, message=what, retry_after=pause)
        if pause and failed is not None:
            # Whoever asks again by itself would end a good engine each time.
            model.refusal = RefusedReload(failed, failure, now + pause)
        self.refuse_callers(refused, failure)

    def engine_died(self, worker: str, failure: Failure, now: float) -> None:
        """The engine of a ready model is gone; the worker told the gateways and holds no grant any more."""
        process = self.workers[worker]
        if process.model is None:
            return
        if not process.serves:  # it was told to leave meanwhile, and what it worked on nobody wants
            process.model.end_runs()
            return
        draining = process.state is WorkerState.DRAINING
        process.transition(WorkerEvent.DIED)
        self._engine_lost(process.model, failure, now, leaving=draining)
        if draining or not process.model.wanted:
            self.stop_worker(process)

    def _engine_lost(self, model: ScheduledModel, failure: Failure, now: float, *, leaving: bool) -> None:
        self.count("engine_deaths")
        model.returning = {
            (key.gateway, key.number): lease.number for lease in model.leases.values() for key in lease.running
        } | {(key.gateway, key.number): grant.order for key, grant in model.grants.items()}
        model.end_runs()
        self._died(model, failure, now, leaving=leaving)

    def _died(self, model: ScheduledModel, failure: Failure, now: float, *, leaving: bool = False) -> None:
        """Let it be tried again at once, unless that happened too often."""
        failure = with_model(model, failure)
        fields = {"model": model.name, "reason": failure.message}
        if not model.backoff.died(failure, now):
            self.emit(LogDecision("error", "engine lost too often, it is not started again", fields))
            model.wanted = False
            self.refuse_waiting(model, model.backoff.refusal(model.name, now))
            if model.provisional:
                model.backoff.ready()
        elif leaving or self.closing:
            self.emit(
                LogDecision("warning", "engine lost, it was to leave", {**fields, "why": self.unload_reason(model)})
            )
        elif model.wanted or model.order is not None:
            self.emit(LogDecision("warning", "engine lost, it is started again", fields))
        else:
            self.emit(LogDecision("warning", "engine lost, nobody wants it", fields))

    def worker_gone(self, worker: str, failure: Failure, now: float) -> None:
        """The process is gone, whatever it was doing."""
        process = self.workers.pop(worker, None)
        if process is None:
            return
        before = process.state
        process.transition(WorkerEvent.GONE)
        model = process.model
        if before is WorkerState.SPAWNED and not self.closing:
            spare_workers.spawn_failed(self, failure, now)
        if model is None or model.process is not process:
            return
        model.process = None
        self.memory += process.memory if self.memory else 0
        if before in (WorkerState.READY, WorkerState.DRAINING):
            self._engine_lost(model, failure, now, leaving=before is WorkerState.DRAINING)
            model.wanted = model.wanted and before is WorkerState.READY
        elif before in (WorkerState.CHECKING, WorkerState.CHECKED, WorkerState.LOADING):
            # What is told about a model comes from its worker; the worker's own death says nothing about it.
            self._died(model, failure, now)
        elif before is WorkerState.STOPPING:
            model.end_runs()
        for caller in model.unloaders:
            self.emit(AnswerCall(caller.peer, caller.number, [model.name]))
        model.unloaders.clear()

    def version_mismatch(self, worker: str, installed: int, now: float) -> None:
        """A process said something in another version of the protocol."""
        spare_workers.version_mismatch(self, worker, installed, now)


def _satisfies(wanted: ModelSpec | None, spec: ModelSpec | None) -> bool:
    """Return whether a model that is loaded as ``spec`` says is loaded as was ``wanted``."""
    return wanted is None or spec is None or not needs_new_engine(wanted, spec)


def _log_fields(facts: EngineReady) -> dict[str, object]:
    return {
        "engine_pid": facts.engine_pid,
        "version": facts.version,
        "slots": facts.slots,
        "context": facts.context,
        "seconds": round(facts.seconds, 3),
    }
