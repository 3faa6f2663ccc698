"""Reports of a dead supervisor's peers: each message that was lost with it, and what its successor does."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from protocol.ids import RequestKey
from protocol.messages.caller import Caller
from protocol.messages.engines import EngineReady, LoadProgressed, LoadStage
from protocol.messages.recovery import (
    AttemptSnapshot,
    GatewaySnapshot,
    RequestSnapshot,
    WorkerSnapshot,
)
from protocol.messages.work import AttemptEnded
from protocol.models.nodes import HEAD
from protocol.worker_states import WorkerState
from supervisor.scheduler.recovery.joined_snapshots import is_consistent, join_snapshots, to_be_submitted
from supervisor.scheduler.recovery.recovery_events import AttemptAt
from tests.supervisor.scheduler.effect_player import spec

KEY = RequestKey("g1", 7, 1)
FACTS = EngineReady(2, 4096, 1, "http://127.0.0.1:1", 0.1)


ARRIVALS = {"w1": 100.0, "w2": 101.0, "g1": 102.0, "g2": 103.0}


def worker(*, has: bool = False, ended: bool = False, state: WorkerState = WorkerState.READY) -> WorkerSnapshot:
    attempts = [AttemptSnapshot(*KEY, 1, 5.0)] if has else []
    return WorkerSnapshot(state, spec("a"), FACTS, attempts, [AttemptEnded(*KEY)] if ended else [])


def gateway(*, waits: bool = True, at: str = "") -> GatewaySnapshot:
    return GatewaySnapshot([RequestSnapshot(7, 1, 4.0, at, Caller("ci"))] if waits else [])


class Crossing(NamedTuple):
    lost: str
    workers: dict[str, WorkerSnapshot]
    gateways: dict[str, GatewaySnapshot]
    submitted: bool = False
    """Whether a ``SubmitRequest`` follows, which waits unless a worker has the attempt or has ended it."""
    held: bool = False
    """Whether its slots are in use."""
    unwanted: bool = False
    returned: bool = False
    ended: bool = False


CROSSINGS = [
    Crossing("SubmitRequest", {"w1": worker()}, {"g1": gateway()}, submitted=True),
    Crossing("Run", {"w1": worker()}, {"g1": gateway()}, submitted=True),
    Crossing("Run, and its gateway has read Granted", {"w1": worker()}, {"g1": gateway(at="w1")}, returned=True),
    Crossing("Granted", {"w1": worker(has=True)}, {"g1": gateway()}, submitted=True, held=True),
    Crossing("nothing", {"w1": worker(has=True)}, {"g1": gateway(at="w1")}, held=True),
    Crossing("AttemptEnded", {"w1": worker(ended=True)}, {"g1": gateway(at="w1")}),
    Crossing("Granted and AttemptEnded", {"w1": worker(ended=True)}, {"g1": gateway()}, submitted=True, ended=True),
    Crossing("AttemptEnded, and its client has the answer", {"w1": worker(ended=True)}, {"g1": gateway(waits=False)}),
    Crossing("Cancel", {"w1": worker(has=True)}, {"g1": gateway(waits=False)}, held=True, unwanted=True),
    Crossing("Cancel of what waited", {"w1": worker()}, {"g1": gateway(waits=False)}),
    Crossing("Refused", {"w1": worker()}, {"g1": gateway()}, submitted=True),
    Crossing("the gateway", {"w1": worker(has=True)}, {}, held=True, unwanted=True),
    Crossing("the gateway, another one lives", {"w1": worker(has=True)}, {"g2": gateway()}, held=True, unwanted=True),
    Crossing("the worker", {}, {"g1": gateway(at="w1")}),
    Crossing("the worker, and Granted", {}, {"g1": gateway()}, submitted=True),
    Crossing("the worker, another one lives", {"w2": worker()}, {"g1": gateway(at="w1")}),
    Crossing("both", {}, {}),
    Crossing("EngineDied", {"w1": worker(state=WorkerState.ENGINE_LOST)}, {"g1": gateway(at="w1")}, returned=True),
    Crossing(
        "Shutdown was read", {"w1": worker(has=True, state=WorkerState.LEAVING)}, {"g1": gateway(at="w1")}, held=True
    ),
]


@pytest.mark.parametrize("case", CROSSINGS, ids=lambda case: case.lost)
def test_what_was_lost_with_the_supervisor(case: Crossing) -> None:
    world = join_snapshots(case.workers, case.gateways, ARRIVALS)
    held = [attempt.key for each in world.workers for attempt in each.attempts]
    submitted = to_be_submitted(case.gateways)
    of_g1 = {key for key in submitted if key.gateway == "g1"}
    assert of_g1 == ({KEY} if case.submitted else set())
    assert held == [KEY] * case.held
    assert world.unwanted == [AttemptAt(KEY, "w1")] * case.unwanted
    assert world.returned == [AttemptAt(KEY, "w1")] * case.returned
    assert world.ended == ({KEY: "w1"} if case.ended else {})


def test_the_limits_of_a_key_count_what_runs() -> None:
    (running,) = join_snapshots({"w1": worker(has=True)}, {"g1": gateway(at="w1")}, ARRIVALS).workers
    assert [attempt.caller for attempt in running.attempts] == [Caller("ci")]
    (running,) = join_snapshots({"w1": worker(has=True)}, {}, ARRIVALS).workers
    assert [attempt.caller for attempt in running.attempts] == [None]


def test_a_worker_is_on_its_node_and_its_backend_there_runs_its_model() -> None:
    snapshots = {
        "w1": WorkerSnapshot(WorkerState.READY, spec("a"), FACTS, backend="cuda"),
        "w2": WorkerSnapshot(WorkerState.READY, spec("b"), FACTS),
    }
    first, second = join_snapshots(snapshots, {}, ARRIVALS, nodes={"w1": "gpu2"}).workers
    assert (first.node, first.backend) == ("gpu2", "cuda")
    assert (second.node, second.backend) == (HEAD, "")


def test_ages_are_subtracted_from_the_time_at_which_they_arrived() -> None:
    attempts = [AttemptSnapshot(*KEY, 1, 5.0)]
    used = WorkerSnapshot(WorkerState.READY, spec("a"), FACTS, attempts, last_use=3.0)
    never = WorkerSnapshot(WorkerState.READY, spec("b"), FACTS)
    first, second = join_snapshots({"w1": used, "w2": never}, {}, ARRIVALS).workers
    assert ([each.began for each in first.attempts], first.last_use) == ([95.0], 97.0)
    assert second.last_use == 0.0
    progress = LoadProgressed(LoadStage.LOADING, 1, 2)
    loading = WorkerSnapshot(WorkerState.LOADING, spec("b"), load_age=30.0, progress=progress)
    (other,) = join_snapshots({"w1": loading}, {}, ARRIVALS).workers
    assert (first.load_began, other.load_began, other.progress) == (None, 70.0, progress)
    waiting = {
        "g1": GatewaySnapshot([RequestSnapshot(7, 1, 4.0, "w2"), RequestSnapshot(8, 1, 3.0, "w2")]),
        "g2": GatewaySnapshot([RequestSnapshot(9, 1, 4.5, "w2")]),
    }
    returned = join_snapshots({"w2": never}, waiting, ARRIVALS).returned
    assert [each.key.number for each in returned] == [7, 9, 8], "the oldest first"


@pytest.mark.parametrize(
    ("fields", "consistent"),
    [
        ({}, True),
        ({"state": WorkerState.LOADING}, False),
        ({"state": WorkerState.LOADING, "spec": spec("a")}, True),
        ({"state": WorkerState.READY, "spec": spec("a")}, False),
        ({"state": WorkerState.READY, "facts": FACTS}, False),
        ({"state": WorkerState.READY, "spec": spec("a"), "facts": FACTS}, True),
        ({"state": WorkerState.ENGINE_LOST}, False),
        ({"state": WorkerState.ENGINE_LOST, "spec": spec("a")}, True),
        ({"state": WorkerState.ENGINE_LOST, "spec": spec("a"), "attempts": [AttemptSnapshot(*KEY, 1, 5.0)]}, False),
        ({"attempts": [AttemptSnapshot(*KEY, 1, 5.0)]}, False),
        ({"state": WorkerState.LEAVING}, True),
    ],
)
def test_a_worker_that_contradicts_itself_is_not_taken_over(fields: dict[str, Any], consistent: bool) -> None:
    assert is_consistent(WorkerSnapshot(**fields)) == consistent


def test_a_piece_of_a_list_is_still_followed_by_another() -> None:
    snapshot = GatewaySnapshot([RequestSnapshot(7, 1, 4.0, "w1", more=True)])
    world = join_snapshots({"w1": worker(has=True)}, {"g1": snapshot}, ARRIVALS)
    assert [each.more for each in world.workers[0].attempts] == [True]
