"""Which models get a worker and are loaded now, which are evicted for them, and which are refused. Pure.

A part of :mod:`supervisor.scheduler.reconcile`; :mod:`supervisor.scheduler.eviction` decides which models must leave.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

from protocol.models.memory import MemoryEstimate
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from supervisor.scheduler import model_changes
from supervisor.scheduler.eviction import (
    Blocked,
    Evict,
    EvictionReason,
    Fits,
    Insufficient,
    LoadRequest,
    Verdict,
    Wait,
)
from supervisor.scheduler.loads.over_limits import models_over_limits
from supervisor.scheduler.loads.refusals import refused
from supervisor.scheduler.model_states import TO_BE_LOADED, ModelState
from supervisor.scheduler.nodes.node_assignment import NodeAssignment
from supervisor.scheduler.nodes.node_choice import Effort, nearest, offer_of
from supervisor.scheduler.nodes.node_views import NodeViews, loaded_model, loaded_workers, model_ahead, request_of
from supervisor.scheduler.nodes.reservations import EvictionClaim, LoadReservation, Position
from supervisor.scheduler.replicas.replica_set import ReplicaSet
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState

LAST_ORDER: Final = 1 << 62
"""After every request."""


def models_to_load(state: SchedulerState) -> list[ScheduledModel]:
    """Return the models that are to be loaded and have no engine, in the order in which they were requested."""
    return sorted((model for model in state.index.to_load if is_to_be_loaded(state, model)), key=position_of)


def is_to_be_loaded(state: SchedulerState, model: ScheduledModel) -> bool:
    """Return whether a model has no engine and is to get one."""
    return not state.closing and model.state in TO_BE_LOADED and model.demanded


def position_of(model: ScheduledModel) -> Position:
    """Return the position of a model among those that are to be loaded."""
    order = model.order
    return LAST_ORDER if order is None else order, model.replica_set.serial, model.number


def claims_of_settings(state: SchedulerState) -> dict[str, EvictionClaim]:
    """Return claims on models that changed settings do not let stay beside others, by key."""
    most, groups = state.limits.models, state.policies.groups
    nodes = state.nodes.keys() if groups else state.index.crowded & state.nodes.keys()
    if state.closing or not nodes:
        return {}
    workers = [worker for name in state.nodes if name in nodes for worker in state.nodes[name].workers.values()]
    over = models_over_limits([loaded_model(model, worker) for worker, model in loaded_workers(workers)], most, groups)
    return {key: EvictionClaim(0, sure=True, reason=reason) for key, reason in over.items()}


class Assigned(NamedTuple):
    """At what a decision about loads has looked."""

    models: set[ReplicaSet]
    """Those that are to be loaded."""
    claimed: set[str]
    """The keys of the models on which there is another claim than before, or none any more."""
    nodes: set[str]


def assign_workers(state: SchedulerState, due: Iterable[ReplicaSet], nodes: Collection[str], now: float) -> Assigned:
    """Assign workers to the models that must be loaded, load those that fit, and claim those to evict.

    ``due``: the models that have changed. ``nodes``: where something has changed. What was decided of the others stays.
    """
    return _Assignment(state, now).decide(due, nodes)


class _Assignment:
    """The nodes and their spare workers, while one model after the other gets its part of them."""

    def __init__(self, state: SchedulerState, now: float) -> None:
        self._state, self._now = state, now
        settings = claims_of_settings(state)
        self._views = NodeViews(state, now, settings, state.reservations)
        self._nodes = NodeAssignment(state, self._views, now)
        self._todo: list[tuple[Position, ScheduledModel]] = []
        """A heap. No two models have the same position."""
        self._before: dict[str, EvictionClaim | None] = {}
        """The former claims on models on which there is another one, or none."""
        self._looked = Assigned(set(), set(), set())
        for key in state.settings_claims:
            self._claim(key, None)
        for key, claim in settings.items():
            self._claim(key, claim)
        state.settings_claims = tuple(settings)

    def decide(self, due: Iterable[ReplicaSet], nodes: Collection[str]) -> Assigned:
        """Decide about the models that have changed, and those on nodes where something has."""
        changed = [model for each in due for model in each.replicas]
        for name in {*nodes, *self._nodes_of(changed)}:
            self._reopen(name)
        waiting = {model for _, model in self._todo}
        for model in changed:
            if model not in waiting and is_to_be_loaded(self._state, model):
                heapq.heappush(self._todo, (position_of(model), model))
        try:
            while self._todo:
                position, model = self._todo[0]
                if model.spec is not None:
                    self._looked.models.add(model.replica_set)
                    self._assign(model, model.spec, position)
                heapq.heappop(self._todo)
        except BaseException:
            for _, model in self._todo:  # the next event tries again
                model.replica_set.changed()
            raise
        for key, before in self._before.items():
            if self._state.claims.get(key) != before:
                self._looked.claimed.add(key)
        return self._looked

    def _nodes_of(self, changed: Iterable[ScheduledModel]) -> Iterator[str]:
        """Yield where models that have changed were to be loaded; forget that of those that had no node yet."""
        for model in changed:
            reserved = self._state.reservations.of(model)
            if reserved is not None and reserved.node:
                yield reserved.node
            elif reserved is not None:
                self._forget(reserved)

    def _reopen(self, node: str, position: Position | None = None) -> None:
        """Decide again about the models on a node that are behind a position, or about all."""
        self._looked.nodes.add(node)
        self._state.figures.pop(node, None)
        for reserved in self._state.reservations.after(node, position):
            self._forget(reserved)
            if is_to_be_loaded(self._state, reserved.model):
                heapq.heappush(self._todo, (position_of(reserved.model), reserved.model))

    def _forget(self, reserved: LoadReservation) -> None:
        self._state.reservations.remove(reserved.model)
        self._state.unmet.waits_no_more(reserved.model.key, self._now)
        for key in reserved.claims:
            self._claim(key, None)

    def _reserve(self, reservation: LoadReservation) -> None:
        """Keep what was decided for a model. What was decided behind it on its node is decided again."""
        if self._state.models.get(reservation.model.key) is not reservation.model:  # it was refused, and forgotten
            self._state.unmet.waits_no_more(reservation.model.key, self._now)
            return
        if reservation.node:
            self._reopen(reservation.node, reservation.position)
        self._state.reservations.add(reservation)
        for key, claim in reservation.claims.items():
            self._claim(key, claim)

    def _claim(self, key: str, claim: EvictionClaim | None) -> None:
        claims = self._state.claims
        self._before.setdefault(key, claims.get(key))
        if claim is None:
            claims.pop(key, None)
        else:
            claims[key] = claim

    def _assign(self, model: ScheduledModel, spec: ModelSpec, position: Position) -> None:
        """Assign a worker to a model, or load it, or find out what prevents that."""
        node = self._nodes.node_for(model, spec, position)
        if not node:
            self._reserve(LoadReservation(model, "", position))
            return
        checked = model.state is ModelState.CHECKED
        # Old figures would start, refuse or unload too much. A model that runs elsewhere takes nothing of this machine.
        ready = checked and (spec.elsewhere or not self._state.nodes[node].memory.unknown)
        # What an earlier check found may have changed: only after a check does memory decide.
        request = request_of(
            model, spec, self._state.nodes[node].facts, model.estimate if checked else MemoryEstimate()
        )
        offer = offer_of(self._views.of(node, spec, position), request, may_displace=model.may_displace(self._now))
        if spec.elsewhere:
            offer = offer._replace(verdict=Fits(), effort=Effort.NONE)
        if ready and len(self._state.nodes) > 1 and offer.effort:
            others = self._nodes.compare(model, spec, offer, position)
            if others.unknown:
                self._reserve(LoadReservation(model, "", position))
                return
            if others.move_to:
                self._nodes.leave(model, others.move_to)
                self._assign(model, spec, position)
                return
            offer = nearest([offer, *others.refusals])
        if not ready and isinstance(offer.verdict, Insufficient | Blocked) and offer.verdict.shortfall is not None:
            offer = offer._replace(verdict=Wait(memory=True))
        if ready and offer.effort >= Effort.BUSY_MODELS:
            self._nodes.note_unmet(model, spec, offer.estimate)
        reservation = LoadReservation(model, node, position)
        if not refused(self._state, model, offer, self._now, undecided=checked and not ready):
            reservation = self._load(model, spec, request, offer.verdict, reservation, ready=ready)
        self._reserve(reservation)

    def _load(
        self,
        model: ScheduledModel,
        spec: ModelSpec,
        request: LoadRequest,
        verdict: Verdict,
        reservation: LoadReservation,
        *,
        ready: bool,
    ) -> LoadReservation:
        """Let a worker check or load a model; return what it takes, and what must leave for it. ``ready``: whether memory decides."""
        state, worker, node = self._state, model.worker, request.node
        model.lacks_memory = _lacks_memory(verdict)
        context = verdict.context if isinstance(verdict, Fits) else 0
        if not spec.elsewhere:
            estimate = self._nodes.estimate_ahead(model, spec, node)
            ahead = model_ahead(request._replace(estimate=estimate), context, self._now)
            reservation = reservation._replace(ahead=ahead)
        if isinstance(verdict, Evict):
            claims = {}
            for evicted, reason in zip(verdict.models, verdict.reasons, strict=True):
                sure = ready and not (verdict.waits and reason is EvictionReason.MEMORY)
                claims[evicted] = EvictionClaim(model.order or 0, sure, reason, model.name, _requested_by(model))
            reservation = reservation._replace(claims=claims)
        if worker is None:
            spares = [each for each in state.nodes[node].workers.values() if each.state is WorkerState.SPARE]
            if spares:
                model_changes.begin_check(state, model, spec, spares[-1])
        elif ready and isinstance(verdict, Fits):
            model_changes.choose_context(worker, context)
            model_changes.start_engine(state, model, spec, worker, self._now)
            state.unmet.met(model.key)
        return reservation


def _lacks_memory(verdict: Verdict) -> bool:
    """Return whether only memory is missing."""
    if isinstance(verdict, Evict):
        return set(verdict.reasons) == {EvictionReason.MEMORY}
    return isinstance(verdict, Wait) and verdict.memory


def _requested_by(model: ScheduledModel) -> str:
    """Return what a model is loaded for: the id of the request that waits longest, or ``load``."""
    first = min(model.queue, key=lambda waiting: waiting.order, default=None)
    return first.request.label if first is not None and first.order == model.order else "load"
