"""What is loaded on each node, and what is about to be, as one load after the other sees it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from protocol.models.memory import MemoryEstimate
from protocol.models.nodes import HEAD, NodeFacts
from protocol.models.recipes import ModelSpec, backend_on, with_backend
from protocol.worker_states import WorkerState
from supervisor.scheduler.eviction import LoadedModel, LoadLimits, LoadRequest
from supervisor.scheduler.memory import fitting, memory_events
from supervisor.scheduler.memory.fitting import ModelMemory
from supervisor.scheduler.nodes.node_choice import NodeView
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from supervisor.scheduler.state import SchedulerState


class NodeViews:
    """The nodes, while workers are assigned: each decision changes what later ones see."""

    def __init__(self, state: SchedulerState, claimed: Collection[str], now: float) -> None:
        """``claimed``: the keys of the models that leave anyway."""
        self._state, self._now = state, now
        self._leaving = set(claimed)
        self._loaded: dict[str, dict[str, LoadedModel]] = {}
        """Node → what is loaded there, for the nodes that were looked at."""
        self._limits: dict[str, LoadLimits] = {}

    def of(self, node: str, spec: ModelSpec) -> NodeView:
        """Return what a load finds on a node. Of other nodes, only what groups may forbid beside it matters."""
        found = list(self._on(node).values())
        if self._state.policies.groups:
            found += [each for name in self._state.nodes if name != node for each in self._on(name).values()]
        files = self._state.files
        return NodeView(
            node,
            found,
            self.limits(node),
            memory_read=self._state.nodes[node].memory.was_read,
            has_files=node == HEAD or files is None or files.has(node, spec),
        )

    def limits(self, node: str) -> LoadLimits:
        """Return how much may be loaded on a node."""
        if node not in self._limits:
            memory = memory_events.available_memory(self._state, self._state.nodes[node], self._now)
            self._limits[node] = LoadLimits(self._state.limits.models, memory, self._state.policies.groups)
        return self._limits[node]

    def add(self, request: LoadRequest, context: int = 0) -> None:
        """A model is about to be loaded: later loads see it as loaded, with all of its memory to come."""
        self._on(request.node)[request.model] = model_ahead(request, context, self._now)

    def _on(self, node: str) -> dict[str, LoadedModel]:
        """Return what is loaded on a node, by key."""
        if node not in self._loaded:
            self._loaded[node] = {
                model.key: loaded_model(model, worker, leaving=model.key in self._leaving)
                for worker, model in loaded_workers(self._state.nodes[node].workers.values())
            }
        return self._loaded[node]

    def leave(self, keys: Collection[str]) -> None:
        """These models leave."""
        self._leaving.update(keys)
        for loaded in self._loaded.values():
            for key in keys & loaded.keys():
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
