"""The node of each model that is to be loaded: chosen once it is queued, and again if a check shows that it fits elsewhere. Pure.

A part of :mod:`supervisor.scheduler.loads.assignment`; :mod:`supervisor.scheduler.nodes.node_choice` compares the nodes. On a server
with one node, nothing is to be chosen.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from protocol.failures import Code, Failure
from protocol.messages.engines import LoadProgressed, LoadStage
from protocol.models.memory import HOST, MemoryEstimate
from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec, backend_on, with_backend
from protocol.worker_states import WorkerState
from supervisor.scheduler import model_changes
from supervisor.scheduler.effects import FetchFiles, LogDecision
from supervisor.scheduler.memory import fitting
from supervisor.scheduler.model_states import ModelState
from supervisor.scheduler.nodes import node_choice
from supervisor.scheduler.nodes.node_bounds import LOWEST, Bound, Demand, bound_of
from supervisor.scheduler.nodes.node_choice import Effort, Offer, offer_of
from supervisor.scheduler.nodes.node_comparisons import are_read, compares_now
from supervisor.scheduler.nodes.node_views import NodeViews, request_of
from supervisor.scheduler.nodes.reservations import LAST_POSITION, Position
from supervisor.scheduler.nodes.suitability import awaited_node, lost_nodes, obstacle, suitable_nodes, suits
from supervisor.scheduler.nodes.unmet_demand import bundle_of
from supervisor.scheduler.queue import answers
from supervisor.scheduler.replicas import replication
from supervisor.scheduler.scheduled_model import ScheduledModel
from supervisor.scheduler.state import SchedulerState

NODE_RETRY_S: Final = 30.0
"""When a client may ask again for a model that no present node suits."""
_ROUNDING: Final = 256
"""Bytes by which what a model needs on another node may differ from what it needs where it was checked."""
_MAX_NAMED: Final = 4
"""A refusal names this many nodes."""


class OtherNodes(NamedTuple):
    """What other nodes offer to a checked model that does not fit on its worker's node."""

    move_to: str = ""
    """Where its load takes less effort; empty if nowhere."""
    refusals: Sequence[Offer] = ()
    """What prevents the load there, if it cannot be loaded on any node."""
    unknown: bool = False
    """Whether their memory must be read first."""


class NodeAssignment:
    """Chooses a node for one model after the other. ``views``: what each of them finds there."""

    def __init__(self, state: SchedulerState, views: NodeViews, now: float) -> None:
        """Nothing is chosen yet."""
        self._state, self._views, self._now = state, views, now

    def node_for(self, model: ScheduledModel, spec: ModelSpec, position: Position) -> str:
        """Return the node where a model is checked or loaded next; empty if it waits for something else, or was refused."""
        worker, search = model.worker, model.search
        if worker is not None:
            if model.state is ModelState.CHECKING or suits(self._state, model, spec, worker.node, self._now):
                return worker.node
            self.leave(model)
        if not (search.node and suits(self._state, model, spec, search.node, self._now)):
            search.node = ""
            nodes = suitable_nodes(self._state, model, spec, self._now)
            if not nodes:
                if model.is_lead and awaited_node(self._state, spec, self._now) is not None:
                    self.note_unmet(model, spec, node_choice.estimate_of_size(spec.size))
                else:
                    self._refuse(model, spec)
                return ""
            search.node = nodes[0] if len(nodes) == 1 else self._choose(model, spec, nodes, position)
        return search.node if search.node and self._has_files(model, spec, search.node) else ""

    def compare(self, model: ScheduledModel, spec: ModelSpec, present: Offer, position: Position) -> OtherNodes:
        """Return what the other nodes offer to a checked model, whose ``present`` node would take some effort."""
        model.search.compares = True
        if present.effort < Effort.PINNED_MODELS and not compares_now(model, self._now):
            return OtherNodes()
        others = [name for name in suitable_nodes(self._state, model, spec, self._now) if name != present.node]
        if not others or self._others_leave_for(model):
            model.search.compared_at = self._now
            return OtherNodes()
        if not are_read(self._state, model, others, self._now):
            return OtherNodes(unknown=True)
        model.search.compared_at = self._now
        found = self._best(model, spec, others, position, below=min(present.effort, Effort.PINNED_MODELS))
        if found is not None or present.effort < Effort.PINNED_MODELS:
            return OtherNodes(found.node if found is not None else "")
        return OtherNodes(refusals=self._offers(model, spec, others, position))

    def best_now(self, model: ScheduledModel, spec: ModelSpec, present: str = "") -> Offer | None:
        """Return the best offer for a model by what is known now; None if no node suits it. ``present``: where it was checked."""
        if model.worker is not None and model.worker.serves:
            present, nodes = model.worker.node, [model.worker.node]
        else:
            nodes = list(suitable_nodes(self._state, model, spec, self._now))
        return node_choice.best(self._offers(model, spec, nodes, LAST_POSITION, may_displace=True), present)

    def refusal(self, model: ScheduledModel, spec: ModelSpec) -> Failure:
        """Return why no node suits a model."""
        state, now = self._state, self._now
        failed = {node: each.failure for node, each in model.search.failed_copies.items() if each.until > now}
        obstacles = [f"{name}: {obstacle(state, model, spec.needs, name, now)}" for name in state.nodes]
        rest = f"; and {len(obstacles) - _MAX_NAMED} further nodes" if len(obstacles) > _MAX_NAMED else ""
        reason = f"Model {model.name} can run on no node of this server ({'; '.join(obstacles[:_MAX_NAMED])}{rest})"
        if lost := lost_nodes(state, spec):
            name, node = lost[-1]
            reason += (
                f"; node {name}, which suits it, was lost {now - node.at:.0f} s ago: start it again, or let the model"
                " run on other nodes"
            )
        code = next((each.code for each in failed.values()), Code.NO_NODE)
        detail = "\n".join(f"{node}: {each.detail}" for node, each in failed.items() if each.detail)
        return Failure(code, reason, model=model.name, retry_after=NODE_RETRY_S, detail=detail)

    def leave(self, model: ScheduledModel, to: str = "") -> None:
        """Take a model from the worker that has checked it: it is checked on another node. The worker becomes a spare again."""
        if model.worker is not None:
            fields = {"model": model.name, "worker": model.worker.id, "node": model.worker.node, "to": to}
            self._state.emit(LogDecision("info", "model is loaded on another node than it was checked on", fields))
        model_changes.release_worker(self._state, model)
        model_changes.queue_again(model)
        model.search.node = to

    def estimate_ahead(self, model: ScheduledModel, spec: ModelSpec, name: str) -> MemoryEstimate:
        """Return what a model that is about to be loaded on a node counts with for later loads."""
        checked = len(self._state.nodes) == 1 or model.state is ModelState.CHECKED
        return model.estimate if checked else self._estimate_on(model, spec, name)

    def note_unmet(self, model: ScheduledModel, spec: ModelSpec, estimate: MemoryEstimate) -> None:
        """A model cannot be loaded now on any node."""
        if self._state.limits.scales and not spec.elsewhere:
            on_devices = any("gpu" in each.device.split() for each in spec.backends) or "gpu" in spec.device.split()
            self._state.unmet.note(model.key, bundle_of(spec, estimate, on_devices=on_devices))

    def _others_leave_for(self, model: ScheduledModel) -> bool:
        """Return whether models already leave for this one: then it is loaded where they were."""
        return any(
            worker.eviction is not None and worker.eviction.model == model.name
            for worker in self._state.index.workers_in[WorkerState.LEAVING].values()
        )

    def _choose(self, model: ScheduledModel, spec: ModelSpec, nodes: Sequence[str], position: Position) -> str:
        """Return the best of several nodes; empty until their memory was read."""
        if not are_read(self._state, model, nodes, self._now):
            return ""
        found = self._best(model, spec, nodes, position)
        return found.node if found is not None else ""

    def _best(
        self,
        model: ScheduledModel,
        spec: ModelSpec,
        nodes: Sequence[str],
        position: Position,
        below: int = Effort.MORE_MEMORY + 1,
    ) -> Offer | None:
        """Return the best offer that takes less effort than ``below``; None if there is none."""
        found: Offer | None = None
        for bound, name in self._bounds(model, spec, nodes, below):
            if found is not None and bound > found.order:
                break
            (offer,) = self._offers(model, spec, [name], position)
            if offer.effort < below and (found is None or offer.order < found.order):
                found = offer
        return found

    def _bounds(
        self, model: ScheduledModel, spec: ModelSpec, nodes: Sequence[str], below: int
    ) -> Iterator[tuple[Bound, str]]:
        """Yield nodes that may offer less effort than ``below``, the lowest bound first."""
        least = fitting.least_need(self._known_estimate(model, spec))
        on_host = least.get(HOST, 0)
        rest = sum(least.values()) - on_host
        ranked = []
        for name in nodes:
            bound = LOWEST  # what is only known after a check, or depends on more than memory and the number of models
            if name not in model.search.checks and not self._state.policies.groups and not self._npu(spec, name):
                figures = self._views.figures(name)
                host, devices = on_host + rest, 0
                if figures.devices and self._on_devices(spec, name):
                    host, devices = (on_host, rest) if rest else (0, on_host)
                demand = Demand(
                    model.type, host, devices, _ROUNDING if len(least) > 1 or len(figures.devices) > 1 else 0
                )
                bound = bound_of(figures, demand, has_files=self._views.has_files(name, spec), below=below)
            if bound < (below,):
                ranked.append((bound, name))
        heapq.heapify(ranked)
        while ranked:
            yield heapq.heappop(ranked)

    def _offers(
        self,
        model: ScheduledModel,
        spec: ModelSpec,
        nodes: Sequence[str],
        position: Position,
        *,
        may_displace: bool | None = None,
    ) -> list[Offer]:
        """Return what nodes offer. ``may_displace``: whether models may be evicted; None: as the model's failures allow."""
        siblings = {each.key for each in model.replica_set.replicas} - {model.key}
        return [
            offer_of(
                self._views.of(name, spec, position),
                request_of(model, spec, self._state.nodes[name].facts, self._estimate_on(model, spec, name)),
                siblings=siblings,
                may_displace=model.may_displace(self._now) if may_displace is None else may_displace,
            )
            for name in nodes
        ]

    def _estimate_on(self, model: ScheduledModel, spec: ModelSpec, name: str) -> MemoryEstimate:
        """Return what a model needs on a node: as a check there has found, or one elsewhere, or by the size of its files."""
        found = model.search.estimate_on(name, spec)
        if found is not None:
            return found
        capacities = self._views.limits(name).memory.capacities
        estimate = self._known_estimate(model, spec)
        return node_choice.carried_over(estimate, capacities, on_devices=self._on_devices(spec, name))

    def _known_estimate(self, model: ScheduledModel, spec: ModelSpec) -> MemoryEstimate:
        """Return what a model needs on some node, or what is known of that by its size."""
        checks = (each.estimate for each in model.search.checks.values() if each.spec == spec)
        return next(checks, node_choice.estimate_of_size(spec.size))

    def _npu(self, spec: ModelSpec, name: str) -> str:
        """Return how the engine of a model would use the NPU of a node; empty if it would not."""
        return with_backend(spec, backend_on(spec, self._state.nodes[name].facts)).npu

    def _on_devices(self, spec: ModelSpec, name: str) -> bool:
        """Return whether the engine of a model would compute on devices of a node."""
        return "gpu" in with_backend(spec, backend_on(spec, self._state.nodes[name].facts)).device.split()

    def _has_files(self, model: ScheduledModel, spec: ModelSpec, name: str) -> bool:
        """Return whether a node has the files of a model; otherwise, they are copied to it."""
        files, copies = self._state.files, self._state.copies
        if name == HEAD or files is None or files.has(name, spec):
            return True
        if (model.name, name) not in copies:
            copies[model.name, name] = LoadProgressed(LoadStage.COPYING)
            self._state.emit(FetchFiles(model.name, spec, name))
        return False

    def _refuse(self, model: ScheduledModel, spec: ModelSpec) -> None:
        """Refuse what waits for a model that no node suits. One that is only kept loaded waits for such a node."""
        model.search.over()
        self.note_unmet(model, spec, node_choice.estimate_of_size(spec.size))
        if not model.is_lead:
            replication.give_up(self._state, model, self._now)
        elif model.order is not None:
            answers.refuse_unserved(self._state, model, self.refusal(model, spec))
