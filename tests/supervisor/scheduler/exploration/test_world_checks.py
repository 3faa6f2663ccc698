"""A scheduler that breaks a promise is found out: each check of the exploration fails for a scheduler that was changed for the worse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol.failures import Code, Failure
from protocol.models.nodes import HEAD
from protocol.worker_states import WorkerState
from supervisor.scheduler import eviction, reconcile, spare_workers, worker_deaths
from supervisor.scheduler.nodes import node_events, suitability
from supervisor.scheduler.nodes.node_assignment import NodeAssignment, OtherNodes
from supervisor.scheduler.policy import ModelPolicy
from supervisor.scheduler.queue import answers
from supervisor.scheduler.replicas import replication
from supervisor.scheduler.replicas.scaling import ReplicaScaling
from supervisor.scheduler.scheduled_worker import ScheduledWorker
from tests.supervisor.scheduler.exploration.explorer import ViolationError, explore
from tests.supervisor.scheduler.exploration.small_worlds import OTHER, WorldPlan

Patch = pytest.MonkeyPatch
TWO = {"a": ModelPolicy(min_replicas=2, max_replicas=2)}


def grants_nothing(patch: Patch) -> None:
    patch.setattr(reconcile, "_grant", lambda *_: None)


def moves_models_back_and_forth(patch: Patch) -> None:
    def compare(_: object, model: Any, *__: object) -> OtherNodes:
        return OtherNodes(OTHER if model.worker.node == HEAD else HEAD)

    patch.setattr(NodeAssignment, "compare", compare)


def does_not_move_models_from_a_node_that_drains(patch: Patch) -> None:
    patch.setattr(replication, "_move_one", lambda *_: None)


def loads_models_on_a_node_that_drains(patch: Patch) -> None:
    patch.setattr(suitability, "obstacle", lambda *_: "")


def keeps_workers_of_a_lost_node(patch: Patch) -> None:
    gone = worker_deaths.worker_gone

    def worker_gone(state: Any, worker: str, failure: Failure, now: float) -> None:
        if failure.code is not Code.NODE_LOST:
            gone(state, worker, failure, now)

    patch.setattr(worker_deaths, "worker_gone", worker_gone)


def keeps_copies_to_a_lost_node(patch: Patch) -> None:
    left = node_events.node_left

    def node_left(state: Any, *given: Any, **more: Any) -> None:
        copies = dict(state.copies)
        left(state, *given, **more)
        state.copies = copies

    patch.setattr(node_events, "node_left", node_left)


def refuses_what_waits_for_a_lost_node(patch: Patch) -> None:
    def node_lost(state: Any, model: Any, _: object, failure: Failure) -> None:
        answers.refuse_waiting(state, model, failure)
        model.end_runs()

    patch.setattr(worker_deaths, "_node_lost", node_lost)


def forgets_engines_that_end(patch: Patch) -> None:
    counts = ScheduledWorker.counts_as_loaded.fget
    counted = property(lambda worker: counts(worker) and worker.state is not WorkerState.LEAVING)
    patch.setattr(ScheduledWorker, "counts_as_loaded", counted)


def forgets_memory(patch: Patch) -> None:
    patch.setattr(eviction, "missing", lambda *_: {})


def wants_too_many_replicas(patch: Patch) -> None:
    def observe(scaling: Any, *_: object, **__: object) -> None:
        scaling.wanted = 3

    patch.setattr(ReplicaScaling, "observe", observe)


def adds_no_replica(patch: Patch) -> None:
    patch.setattr(replication, "_add_one", lambda *_: None)


def starts_no_worker_while_an_engine_of_any_node_starts(patch: Patch) -> None:
    keep = spare_workers._keep_spares

    def keep_spares(state: Any, *given: Any) -> None:
        if not any(worker.state is WorkerState.LOADING for worker in state.workers.values()):
            keep(state, *given)

    patch.setattr(spare_workers, "_keep_spares", keep_spares)


BOUND = {"a": HEAD, "b": HEAD, "c": OTHER}
CHANGES: list[tuple[Callable[[Patch], None], WorldPlan, str]] = [
    (grants_nothing, WorldPlan("a", faults=()), "something waits forever"),
    (moves_models_back_and_forth, WorldPlan("abc", faults=()), "forever"),
    (does_not_move_models_from_a_node_that_drains, WorldPlan("a", faults=("node drains",)), "something waits forever"),
    (loads_models_on_a_node_that_drains, WorldPlan("aba", faults=("node drains",)), "on a node that drains"),
    (keeps_workers_of_a_lost_node, WorldPlan("ab", faults=("node is lost",)), "lost node|KeyError"),
    (
        keeps_copies_to_a_lost_node,
        WorldPlan("ab", lacking=(("a", OTHER), ("b", OTHER)), faults=("node is lost",)),
        "forever",
    ),
    (refuses_what_waits_for_a_lost_node, WorldPlan("aba", faults=("node is lost",)), "refused without a reason"),
    (forgets_engines_that_end, WorldPlan("aba", nodes=(HEAD,), faults=()), "more models are loaded|AssertionError"),
    (forgets_memory, WorldPlan("ab", nodes=(HEAD,), loaded=2, memory=1000, faults=()), "more memory of head is taken"),
    (wants_too_many_replicas, WorldPlan("a", loaded=3, policies=TWO, faults=()), "engines of a"),
    (adds_no_replica, WorldPlan("a", policies=TWO, faults=()), "something waits forever"),
    (starts_no_worker_while_an_engine_of_any_node_starts, WorldPlan("ac", only_on=BOUND, faults=()), "forever"),
]


@pytest.mark.parametrize(("change", "plan", "found"), CHANGES, ids=[change.__name__ for change, *_ in CHANGES])
def test_a_scheduler_that_breaks_a_promise_is_found_out(
    change: Callable[[Patch], None], plan: WorldPlan, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    with pytest.raises(ViolationError, match=found):
        explore(plan, 10_000, rests_without=(HEAD,) if plan.only_on else ())
