"""What is loaded on each node, and what is about to be, as one load after the other sees it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import HEAD, NodeFacts
from protocol.models.recipes import ModelSpec, backend_on, with_backend
from protocol.worker_states import WorkerState
from supervisor.scheduler.eviction import LoadedModel, LoadLimits, LoadRequest
from supervisor.scheduler.memory import fitting, memory_events
from supervisor.scheduler.memory.fitting import ModelMemory
from supervisor.scheduler.nodes.node_bounds import BoundFigures, figures_of
from supervisor.scheduler.nodes.node_choice import NodeView
from supervisor.scheduler.nodes.reservations import LoadReservations, Position
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState


class NodeViews:
    """The nodes, while workers are assigned: each decision changes what later ones see."""

    def __init__(
        self,
        state: SchedulerState,
        now: float,
        claimed: Collection[str] = (),
        reservations: LoadReservations | None = None,
    ) -> None:
        """``claimed``: the keys of the models that leave anyway. ``reservations``: what waits; None: nothing counts."""
        self._state, self._now, self._claimed = state, now, claimed
        self._reservations = reservations if reservations is not None else LoadReservations()
        self._loaded: dict[str, dict[str, LoadedModel]] = {}
        """Node → what is loaded there, for the nodes that were looked at."""
        self._counted: Counter[str] = Counter()
        """Node → how many of its reservations are in that."""
        self._limits: dict[str, LoadLimits] = {}

    def of(self, node: str, spec: ModelSpec, position: Position) -> NodeView:
        """Return what a load finds on a node. Of other nodes, only what groups may forbid beside it matters.

        ``position``: that of the load. The ones before it count; none is behind one that was looked at before.
        """
        found = list(self._on(node, position).values())
        if self._state.policies.groups:
            found += [each for name in self._state.nodes if name != node for each in self._on(name, position).values()]
        return NodeView(
            node,
            found,
            self.limits(node),
            memory_read=self._state.nodes[node].memory.was_read,
            has_files=self.has_files(node, spec),
        )

    def has_files(self, node: str, spec: ModelSpec) -> bool:
        """Return whether a node has the files of a model."""
        files = self._state.files
        return node == HEAD or files is None or files.has(node, spec)

    def limits(self, node: str) -> LoadLimits:
        """Return how much may be loaded on a node."""
        if node not in self._limits:
            memory = memory_events.available_memory(self._state, self._state.nodes[node], self._now)
            self._limits[node] = LoadLimits(self._state.limits.models, memory, self._state.policies.groups)
        return self._limits[node]

    def figures(self, node: str) -> BoundFigures:
        """Return the figures of a node for bounds. The state keeps them until something changes on the node."""
        found = self._state.figures.get(node)
        if found is None:
            read = self._state.nodes[node].memory.was_read
            found = figures_of(self._present(node), self._reservations.on(node), self.limits(node), read=read)
            self._state.figures[node] = found
        return found

    def _present(self, node: str) -> list[LoadedModel]:
        return [
            loaded_model(model, worker, leaving=model.key in self._claimed)
            for worker, model in loaded_workers(self._state.nodes[node].workers.values())
        ]

    def _on(self, node: str, position: Position) -> dict[str, LoadedModel]:
        """Return what is loaded on a node, and what is about to be before a position, by key."""
        loaded = self._loaded.get(node)
        if loaded is None:
            loaded = self._loaded[node] = {each.model: each for each in self._present(node)}
        reserved = self._reservations.on(node)
        while self._counted[node] < len(reserved) and reserved[self._counted[node]].position < position:
            each = reserved[self._counted[node]]
            if each.ahead is not None:
                loaded[each.ahead.model] = each.ahead
            self._leave(each.claims)
            self._counted[node] += 1
        return loaded

    def _leave(self, keys: Iterable[str]) -> None:
        """These models leave, for a load on the same node, or on another one because of groups."""
        for key in keys:
            for loaded in self._loaded.values():
                if key in loaded:
                    loaded[key] = loaded[key]._replace(leaving=True)


def request_of(model: ScheduledModel, spec: ModelSpec, node: NodeFacts, estimate: MemoryEstimate) -> LoadRequest:
    """Return the load of a model on a node, with what it needs there."""
    npu = with_backend(spec, backend_on(spec, node)).npu
    return LoadRequest(model.key, model.type, estimate=estimate, npu=npu, groups=model.policy.groups, node=node.name)


def model_ahead(request: LoadRequest, context: int, now: float) -> LoadedModel:
    """Return a model that is about to be loaded as later ones see it."""
    key, model_type, estimate, npu, groups, node = request
    memory = ModelMemory(estimate.need(context) if context else fitting.least_need(estimate))
    return LoadedModel(key, model_type, now, True, movable=False, memory=memory, npu=npu, groups=groups, node=node)


def loaded_workers(workers: Iterable[ScheduledWorker]) -> Iterable[tuple[ScheduledWorker, ScheduledModel]]:
    """Yield those of these workers that have a loaded model, except those whose model runs on other servers."""
    for worker in workers:
        model = worker.model
        if model is not None and worker.counts_as_loaded and not (model.spec and model.spec.elsewhere):
            yield worker, model


def loaded_model(model: ScheduledModel, worker: ScheduledWorker, *, leaving: bool = False) -> LoadedModel:
    """Return a loaded model as loads see it. ``leaving``: it does even if it was not told so yet."""
    return LoadedModel(
        model.key,
        model.type,
        model.last_use,
        busy=bool(model.grants),
        pinned=model.pinned,
        movable=worker.serves,
        leaving=leaving or worker.state is WorkerState.LEAVING,
        draining=worker.state is WorkerState.DRAINING,
        memory=worker.memory,
        npu=with_backend(model.spec, worker.backend).npu if model.spec else "",
        groups=model.policy.groups,
        node=worker.node,
    )


def models_as_seen_by(
    name: str, state: SchedulerState, candidates: Iterable[ScheduledModel], now: float
) -> list[LoadedModel]:
    """Return what is loaded, and what is about to be, as a load of the named model would see it: its present engine leaves."""
    loaded = [
        loaded_model(model, worker, leaving=model.name == name)
        for worker, model in loaded_workers(state.workers.values())
    ]
    ahead = [
        model_ahead(request_of(each, each.spec, state.nodes[each.search.node or HEAD].facts, each.estimate), 0, now)
        for each in candidates
        if each.spec is not None and not each.spec.elsewhere and each.name != name
    ]
    return [*loaded, *ahead]
