"""A worker's snapshot in each state, with and without a report that may not have been read."""

from __future__ import annotations

import pytest

from protocol.failures import Code, Failure
from protocol.messages.engines import EngineDied, EngineReady, LoadFailed, StartEngine
from protocol.messages.models import PolicyOverrides
from protocol.models.recipes import ModelSpec
from protocol.worker_states import WorkerState
from workers.worker.snapshot import ModelRecord, SentReport, unread, worker_snapshot

SPEC = ModelSpec("m", "m", "llamacpp", "cpu", "llm", "/m.gguf")
FACTS = EngineReady(4, 4096, 7, "http://127.0.0.1:1", 0.5)
PINNED = PolicyOverrides(pinned=True)
DIED = EngineDied(Failure(Code.BACKEND_DIED, "it died"))
FAILED = LoadFailed(Failure(Code.LOAD_FAILED, "it failed"), started=True)


def record(report: SentReport | None = None) -> ModelRecord:
    return ModelRecord(StartEngine(SPEC), FACTS, PINNED, report)


@pytest.mark.parametrize(
    ("state", "report", "expected"),
    [
        (WorkerState.SPARE, None, WorkerState.SPARE),
        (WorkerState.SPARE, SentReport(FAILED, 5), WorkerState.LOADING),
        (WorkerState.SPARE, SentReport(FAILED, 4), WorkerState.SPARE),
        (WorkerState.LOADING, None, WorkerState.LOADING),
        (WorkerState.READY, None, WorkerState.READY),
        (WorkerState.ENGINE_LOST, SentReport(DIED, 5), WorkerState.READY),
        (WorkerState.ENGINE_LOST, SentReport(DIED, 4), WorkerState.ENGINE_LOST),
        (WorkerState.LEAVING, None, WorkerState.LEAVING),
        (WorkerState.LEAVING, SentReport(DIED, 5), WorkerState.LEAVING),
    ],
)
def test_a_snapshot_is_of_the_moment_before_an_unread_report(
    state: WorkerState, report: SentReport | None, expected: WorkerState
) -> None:
    """Six `Ping`s have arrived so far."""
    snapshot = worker_snapshot(state, record(report), [], [], 3.0, pings=6, now=10.0)
    assert snapshot.state is expected
    assert snapshot.last_use == 7.0
    assert snapshot.spec == (None if expected is WorkerState.SPARE else SPEC)
    assert snapshot.remembered == (PolicyOverrides() if expected is WorkerState.SPARE else PINNED)
    assert snapshot.facts == (FACTS if expected in (WorkerState.READY, WorkerState.LEAVING) else None)


def test_a_report_is_unread_until_the_second_ping() -> None:
    assert unread(None, 0) is None
    assert [unread(SentReport(DIED, 3), pings) for pings in (3, 4, 5, 6)] == [DIED, DIED, None, None]


def test_an_engine_that_starts_keeps_what_is_remembered_of_the_same_model() -> None:
    model = record(SentReport(DIED, 1))
    model.started(StartEngine(SPEC), 0.0)
    assert model == ModelRecord(StartEngine(SPEC), None, PINNED, None)
    other = StartEngine(ModelSpec("n", "n", "llamacpp", "cpu", "llm", "/n.gguf"))
    model.started(other, 0.0)
    assert model == ModelRecord(other)


def test_a_snapshot_has_the_spec_of_the_head_and_the_paths_of_the_node() -> None:
    model = ModelRecord()
    model.started(StartEngine(SPEC, paths={"/m.gguf": "/n/m.gguf"}), 0.0)
    for state in (WorkerState.LOADING, WorkerState.READY, WorkerState.ENGINE_LOST):
        snapshot = worker_snapshot(state, model, [], [], 0.0, pings=0, now=1.0)
        assert (snapshot.spec, snapshot.paths) == (SPEC, {"/m.gguf": "/n/m.gguf"})
    assert worker_snapshot(WorkerState.SPARE, model, [], [], 0.0, pings=0, now=1.0).paths == {}
