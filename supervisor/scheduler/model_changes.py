"""All changes of a model's state and of its worker's, and what its specs become with them. Pure.

Nothing else writes the states, except for models that a new supervisor takes over (:mod:`recovery.taken_over_models`). Which
change is due is decided elsewhere: by events (:mod:`client_events`, :mod:`worker_events`) and by :mod:`reconcile`. What calls ask
for is noted in :mod:`known_models`.
"""

from __future__ import annotations

from msgspec import structs

from protocol.failures import Failure
from protocol.messages.engines import CheckModel, EngineReady, StartEngine
from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import ModelSpec, backend_on
from protocol.worker_states import WorkerEvent, WorkerState
from supervisor.scheduler.effects import FetchModel, SendMessage
from supervisor.scheduler.model_states import ModelEvent, ModelState
from supervisor.scheduler.nodes.node_search import CheckedNeed
from supervisor.scheduler.scheduled_model import RefusedReload, ScheduledModel, needs_new_engine
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState

# ---- demand ------------------------------------------------------------------------------------------------------


def stop_keeping(model: ScheduledModel) -> None:
    """Do not load a model again without a request."""
    model.keep_loaded = False
    model.replica_set.changed()
    if model.state is ModelState.RELOADING:
        model.transition(ModelEvent.UNLOAD)


def update_demand(state: SchedulerState, model: ScheduledModel, now: float) -> None:
    """Queue or download a requested model that has no worker; dequeue one that is no longer requested."""
    if model.state is ModelState.BACKING_OFF and (model.loaders or not model.backoff.pause(now)):
        model.transition(ModelEvent.PAUSE_OVER)
    elif model.state is ModelState.DOWNLOADING and model.spec is not None:
        model.transition(ModelEvent.DOWNLOAD_ENDED)  # its files were found in another way
    elif model.state is ModelState.QUEUED and not model.demanded:
        model.transition(ModelEvent.ABANDON)
        model.search.over()
    if model.state is not ModelState.ABSENT:
        return
    if model.backoff.pause(now) and not model.loaders:
        model.transition(ModelEvent.BACK_OFF)
    elif model.demanded and model.spec is None:
        model.transition(ModelEvent.FETCH)
        state.emit(FetchModel(model.name))
    elif model.demanded:
        model.transition(ModelEvent.QUEUE)


def end_download(model: ScheduledModel, spec: ModelSpec | None) -> bool:
    """Note that a download has ended, and with which spec; return whether the model waited for it."""
    waited = model.state is ModelState.DOWNLOADING
    if waited:
        model.transition(ModelEvent.DOWNLOAD_ENDED)
    if spec is not None and model.worker is None:
        model.spec = spec
        # Its files are here: a load that was given up meanwhile has not failed.
        model.replica_set.provisional = model.provisional and model.demanded
    return waited


# ---- to ready ----------------------------------------------------------------------------------------------------


def begin_check(state: SchedulerState, model: ScheduledModel, spec: ModelSpec, worker: ScheduledWorker) -> None:
    """Let a spare worker check a queued model."""
    model.transition(ModelEvent.CHECK)
    worker.transition(WorkerEvent.CHECK)
    model.worker, worker.model, worker.idle_since = worker, model, None
    backend = backend_on(spec, state.node_of(worker).facts)
    worker.backend = backend if backend != spec.backend else ""
    worker.device = model.replica_set.device_for(model, spec, worker.node)
    state.emit(SendMessage(worker.id, CheckModel(spec, backend=worker.backend, device=worker.device)))


def finish_check(model: ScheduledModel, worker: ScheduledWorker, estimate: MemoryEstimate) -> None:
    """Note that a model can be tried, and what memory it would need."""
    model.transition(ModelEvent.CHECKED)
    worker.transition(WorkerEvent.CHECKED)
    worker.estimate = model.estimate = estimate
    if model.spec is not None:
        model.search.checks[worker.node] = CheckedNeed(model.spec, estimate)


def start_engine(
    state: SchedulerState, model: ScheduledModel, spec: ModelSpec, worker: ScheduledWorker, now: float
) -> None:
    """Start the engine of a model after its check, or again after its death: with the context that was chosen for it."""
    model.transition(ModelEvent.LOAD)
    worker.transition(WorkerEvent.LOAD)
    worker.held, worker.progress = {}, None
    model.search.over()
    age = now - model.load_began if model.load_began is not None else 0.0
    order = StartEngine(spec, worker.context, dict(worker.need), age=age, replica=model.number)
    order = structs.replace(order, backend=worker.backend, device=worker.device)
    state.emit(SendMessage(worker.id, order))


def choose_context(worker: ScheduledWorker, context: int) -> None:
    """Note the context that a checked model is started with, 0 if none was to be chosen, and what it needs with it."""
    worker.context = context
    worker.need = worker.estimate.need(context)


def become_ready(state: SchedulerState, model: ScheduledModel, worker: ScheduledWorker, facts: EngineReady) -> None:
    """Note that the engine answers."""
    model.transition(ModelEvent.READY)
    worker.transition(WorkerEvent.READY)
    worker.facts = facts
    model.memory = max(facts.rss, 0) or sum(worker.need.values())
    model.backoff.ready()
    model.keep_loaded = True
    model.replica_set.provisional = False
    model.rollback_spec = None
    model.cutoff = next(state.order)


def release_worker(state: SchedulerState, model: ScheduledModel) -> None:
    """Take the worker of a model that has no engine yet.

    It becomes a spare again, unless its check may still take long.
    """
    worker = model.worker
    if worker is None or model.state not in (ModelState.CHECKING, ModelState.CHECKED):
        return
    model.transition(ModelEvent.RELEASE)
    worker.model = model.worker = None
    model.search.over()
    if worker.state is WorkerState.CHECKED:
        worker.transition(WorkerEvent.RELEASE)
    else:
        state.stop_worker(worker)


def queue_again(model: ScheduledModel) -> None:
    """Let a model whose worker was just taken wait for another one."""
    model.transition(ModelEvent.QUEUE)


def fail_load(state: SchedulerState, model: ScheduledModel, worker: ScheduledWorker) -> bool:
    """Take the worker from a model after its check or start failed; return whether its engine had been started."""
    started = model.state is ModelState.LOADING
    model.transition(ModelEvent.LOAD_FAILED)
    worker.model = model.worker = None
    model.search.over()
    if started:
        worker.transition(WorkerEvent.LOAD_FAILED)
        state.stop_worker(worker)
    else:
        worker.transition(WorkerEvent.CHECK_FAILED)
        model.keep_loaded = False
    return started


def roll_back(model: ScheduledModel, failure: Failure, now: float, pause: float) -> None:
    """Continue with the waiting options, or else with the former ones. Refuse the failed ones for ``pause`` seconds."""
    failed = model.spec
    if failed is not None:
        for each in model.replica_set.replicas:
            if each.pending_spec is not None and not needs_new_engine(each.pending_spec, failed):
                each.pending_spec = None
    if model.pending_spec is not None:
        model.spec, model.pending_spec = model.pending_spec, None
    else:
        model.spec, model.rollback_spec = model.rollback_spec, None
        model.replica_set.overrides = model.replica_set.rollback_overrides
    model.keep_loaded = True
    if failed is not None:
        # Otherwise, a client that repeats its request automatically would end a working engine each time.
        for each in model.replica_set.replicas:
            each.refused_reload = RefusedReload(failed, failure, now + pause)


# ---- from ready --------------------------------------------------------------------------------------------------


def drain(model: ScheduledModel, worker: ScheduledWorker) -> None:
    """Let a ready model finish what runs, because it is about to stop."""
    model.transition(ModelEvent.DRAIN)
    worker.transition(WorkerEvent.DRAIN)


def resume(model: ScheduledModel, worker: ScheduledWorker) -> None:
    """Call a drain off."""
    model.transition(ModelEvent.RESUME)
    worker.transition(WorkerEvent.RESUME)


def lose_engine(model: ScheduledModel, worker: ScheduledWorker) -> None:
    """Note that the engine of a model died but its worker lives."""
    model.transition(ModelEvent.ENGINE_DIED)
    worker.transition(WorkerEvent.DIED)


def unload(state: SchedulerState, model: ScheduledModel, worker: ScheduledWorker) -> None:
    """Stop the worker of a model. It is loaded again only on request."""
    model.transition(ModelEvent.UNLOAD)
    model.keep_loaded = False
    model.spec, model.pending_spec, model.rollback_spec = model.pending_spec or model.spec, None, None
    state.stop_worker(worker)


def stop_loading(state: SchedulerState, model: ScheduledModel) -> None:
    """Stop the load of a model that is no longer wanted, whatever it has come to. An engine that serves goes on."""
    stop_keeping(model)
    release_worker(state, model)
    if model.worker is not None and model.state in (ModelState.LOADING, ModelState.RESTARTING):
        unload(state, model, model.worker)


def reload(state: SchedulerState, model: ScheduledModel, worker: ScheduledWorker) -> None:
    """Stop the worker of a model and load it again, with other options if they wait."""
    model.transition(ModelEvent.RELOAD)
    model.keep_loaded = True
    if model.pending_spec is not None:
        model.rollback_spec, model.spec, model.pending_spec = model.spec, model.pending_spec, None
    state.stop_worker(worker)


def lose_worker(model: ScheduledModel) -> None:
    """Note that the worker process of a model is gone."""
    if model.state is ModelState.DRAINING:
        model.keep_loaded = False
    model.transition(ModelEvent.WORKER_GONE)
    model.worker = None
    model.search.over()
