"""Dry runs of loads: a spare worker checks a model, the caller is told what a load would do, and nothing changes. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from protocol.failures import Failure
from protocol.ids import RequestKey
from protocol.messages.engines import CheckModel
from protocol.messages.models import LoadPlan, PlannedEviction
from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import ModelSpec, backend_on, with_backend
from protocol.worker_states import WorkerEvent, WorkerState
from supervisor.scheduler import spare_workers
from supervisor.scheduler.effects import AnswerCall, SendMessage
from supervisor.scheduler.eviction import (
    Blocked,
    Evict,
    Fits,
    Insufficient,
    LoadedModel,
    LoadLimits,
    LoadRequest,
    Verdict,
    decide_eviction,
)
from supervisor.scheduler.loads import assignment, refusals
from supervisor.scheduler.memory import fitting, memory_events
from supervisor.scheduler.nodes.node_assignment import NodeAssignment
from supervisor.scheduler.nodes.node_search import CheckedNeed
from supervisor.scheduler.nodes.node_views import NodeViews, models_as_seen_by
from supervisor.scheduler.queue import answers
from supervisor.scheduler.replicas.replica_set import ReplicaSet, model_name
from supervisor.scheduler.scheduled_model import NEVER, ScheduledModel, satisfies
from supervisor.scheduler.scheduled_worker import PendingPlan
from supervisor.scheduler.state import SchedulerState


def plan_requested(state: SchedulerState, peer: str, number: int, spec: ModelSpec) -> None:
    """A caller wants to know what a load of this model would do."""
    state.plans.append(PendingPlan(peer, number, spec))
    state.settled = False


def forget_plans(state: SchedulerState, peer: str, number: int | None = None) -> None:
    """A caller is gone, or all callers of a peer. A check in progress goes on."""
    state.plans = [plan for plan in state.plans if plan.peer != peer or number not in (None, plan.number)]


def model_checked(state: SchedulerState, worker_id: str, estimate: MemoryEstimate) -> None:
    """A worker has checked a model, perhaps for a plan."""
    worker = state.workers[worker_id]
    if worker.plan is not None and worker.state is WorkerState.CHECKING:
        worker.plan.estimate = worker.plan.checks[worker.node] = estimate
        worker.transition(WorkerEvent.CHECKED)
        worker.transition(WorkerEvent.RELEASE)
        worker.plan = None
        state.node_of(worker).memory.changed()


def check_failed(state: SchedulerState, worker_id: str, failure: Failure) -> None:
    """The check of a model failed, perhaps for a plan."""
    worker = state.workers[worker_id]
    if worker.plan is not None and worker.state is WorkerState.CHECKING:
        _refuse(state, worker.plan, failure)
        worker.transition(WorkerEvent.CHECK_FAILED)
        worker.plan = None


def worker_gone(state: SchedulerState, worker_id: str, failure: Failure) -> None:
    """A worker is gone that perhaps checked a model for a plan."""
    worker = state.workers.get(worker_id)
    if worker is not None and worker.plan is not None:
        _refuse(state, worker.plan, failure)


def advance_plans(state: SchedulerState, now: float) -> None:
    """Give spare workers to plans, and answer those whose models were checked."""
    if not state.plans:
        return
    candidates = assignment.models_to_load(state)
    nodes = NodeAssignment(state, NodeViews(state, now), now)
    due = state.due_plans()
    for plan in list(state.plans):
        refusal = answers.server_ends(state) if state.closing else spare_workers.refusal_without_workers(state, now)
        checked = plan.estimate is not None and plan.node in state.nodes and not state.nodes[plan.node].memory.unknown
        if checked and not _fits_better_elsewhere(state, plan, nodes):
            state.emit(AnswerCall(plan.peer, plan.number, _plan(state, plan, plan.checks[plan.node], candidates, now)))
            state.plans.remove(plan)
        elif refusal is not None:
            _refuse(state, plan, refusal)
        elif plan in due or (checked and not plan.begun):
            _begin(state, plan, nodes)


def _begin(state: SchedulerState, plan: PendingPlan, nodes: NodeAssignment) -> None:
    """Let a spare worker check the model on the node where it would be loaded, if that node has one."""
    model = _model_of(state, plan)
    offer = nodes.best_now(model, plan.spec, plan.node)
    if offer is None:
        _refuse(state, plan, nodes.refusal(model, plan.spec))
        return
    plan.node = offer.node
    spares = [each for each in state.nodes[plan.node].workers.values() if each.state is WorkerState.SPARE]
    if not spares:
        return
    worker = spares[-1]
    plan.begun, worker.plan, worker.idle_since = True, plan, None
    worker.transition(WorkerEvent.CHECK)
    backend = backend_on(plan.spec, state.nodes[plan.node].facts)
    state.emit(SendMessage(worker.id, CheckModel(plan.spec, backend=backend if backend != plan.spec.backend else "")))


def _fits_better_elsewhere(state: SchedulerState, plan: PendingPlan, nodes: NodeAssignment) -> bool:
    """Choose the node again by what the check has found; return whether the model is to be checked there first."""
    if len(state.nodes) == 1:
        return False
    offer = nodes.best_now(_model_of(state, plan), plan.spec, plan.node)
    if offer is None or offer.node == plan.node:
        return False
    plan.node = offer.node
    if plan.node in plan.checks:
        return False
    plan.begun, plan.estimate = False, None
    return True


def _model_of(state: SchedulerState, plan: PendingPlan) -> ScheduledModel:
    """Return the model of a plan as the choice of a node wants it. The scheduler's own one, if any, learns nothing of its checks."""
    spec = plan.spec
    known = state.replica_sets.get(spec.name)
    if known is not None:
        model = copy.copy(known.lead)
        model.search = copy.copy(model.search)
    else:
        unknown = ReplicaSet(spec.name, spec.type, state.policies.of(spec.name), state.index)
        model = ScheduledModel(unknown, 1, state.limits.restarts)
        unknown.replicas.append(model)
    model.search.checks = model.search.checks | {
        node: CheckedNeed(spec, estimate) for node, estimate in plan.checks.items()
    }
    return model


def _refuse(state: SchedulerState, plan: PendingPlan, failure: Failure) -> None:
    if plan in state.plans:
        state.plans.remove(plan)
        state.refuse(RequestKey(plan.peer, plan.number, 0), failure)


def _plan(
    state: SchedulerState, plan: PendingPlan, estimate: MemoryEstimate, candidates: Iterable[ScheduledModel], now: float
) -> LoadPlan:
    spec, facts = plan.spec, state.nodes[plan.node].facts
    available = memory_events.available_memory(state, state.nodes[plan.node], now)
    loaded = models_as_seen_by(spec.name, state, candidates, now)
    groups = state.policies.of(spec.name).groups
    limits = LoadLimits(state.limits.models, available, state.policies.groups)
    npu = with_backend(spec, backend_on(spec, facts)).npu
    request = LoadRequest(spec.name, spec.type, estimate, npu=npu, groups=groups, node=plan.node)
    verdict = Fits() if spec.elsewhere else decide_eviction(request, loaded, limits)
    names = dict(zip(verdict.models, verdict.reasons, strict=True)) if isinstance(verdict, Evict) else {}
    here = [each for each in loaded if each.node == plan.node]
    free_now = available.beside(each.memory for each in here if not each.leaving)
    free_then = fitting.more(
        free_now,
        *(each.memory.used for each in here if each.leaving),
        *(each.memory.whole for each in here if not each.leaving and each.model in names),
    )
    context = fitting.largest_context(estimate, free_then)
    return LoadPlan(
        spec.name,
        spec.checkpoint,
        spec.recipe,
        decision=_decision(state, spec, verdict),
        need=estimate.need(context) if context else fitting.least_need(estimate),
        available={place: max(0, bytes_) for place, bytes_ in free_now.items()},
        reserved={place: available.reserve(place) for place in available.capacities},
        capacities=list(available.capacities.values()),
        parts=estimate.parts,
        measured=estimate.measured,
        context=context or estimate.context,
        slots=estimate.slots,
        evictions=[
            _eviction(each, names[each.model].value, now) for each in loaded if not each.leaving and each.model in names
        ],
        refusal=refusals.refusal_of(spec.name, estimate, verdict),
        node=plan.node if len(state.nodes) > 1 else "",
    )


def _decision(state: SchedulerState, spec: ModelSpec, verdict: Verdict) -> str:
    known = state.replica_sets.get(spec.name)
    own = known.lead if known is not None else None
    if own is not None and own.worker is not None and own.worker.serves and satisfies(spec, own.spec):
        return "loaded"
    if isinstance(verdict, Insufficient | Blocked):
        return "refuse"
    if isinstance(verdict, Evict):
        return "evict"
    return "load" if isinstance(verdict, Fits) else "wait"


def _eviction(loaded: LoadedModel, reason: str, now: float) -> PlannedEviction:
    idle_s = None if loaded.last_use == NEVER else round(now - loaded.last_use, 3)
    return PlannedEviction(model_name(loaded.model), reason, loaded.busy, idle_s, loaded.memory.whole)
