"""A real worker whose supervisor is killed: it tells the next supervisor what it is doing, and streams go on."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from protocol.ids import RequestKey
from protocol.messages.engines import CheckModel, EngineReady, ModelChecked, StartEngine
from protocol.messages.models import PolicyOverrides
from protocol.messages.peers import Shutdown
from protocol.messages.recovery import RememberState, WorkerSnapshot
from protocol.messages.work import AttemptAbandoned, AttemptEnded, Cancel, Run
from protocol.worker_states import WorkerState
from tests.fake_engines.llama_server import program
from tests.support.processes import children, is_asleep, stopped
from tests.support.waiting import wait_for
from tests.workers.direct_engine import spec_of
from tests.workers.worker.replaced_supervisor import FAKE, LOOP, assert_answers, assert_continues, stream
from tests.workers.worker_process import CHAT, WorkerProcess, running_worker


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with running_worker(tmp_path_factory.mktemp("worker"), mortal=True) as one:
        one.load(LOOP)
        one.subscribe()
        yield one


@pytest.fixture
def ready(shared: WorkerProcess) -> Iterator[WorkerProcess]:
    """A worker with a model; requests that a test left running are cancelled. Each test has request numbers of its own."""
    yield shared
    for each in shared.replace_supervisor().attempts:
        shared.cancel(each.number)
        shared.expect(AttemptEnded)


def numbers(snapshot: WorkerSnapshot) -> list[int]:
    return [each.number for each in snapshot.attempts]


def next_after_losing(worker: WorkerProcess, message: Any, payload: bytes = b"") -> WorkerSnapshot:
    """Kill the supervisor when it has just sent a message, which the worker has not read; return what the next one learns."""
    assert_answers(worker)  # it has read the supervisor's pid
    wait_for(lambda: is_asleep(worker.process.pid), "it has read what came with the last message")
    with stopped(worker.process.pid):
        worker.send(message, payload)
        worker.lose_supervisor()
    return worker.get_supervisor()


# What the next supervisor learns.


def test_a_spare_worker_serves_the_next_supervisors(spare: WorkerProcess) -> None:
    assert spare.snapshot == WorkerSnapshot()
    for _ in range(2):
        assert spare.replace_supervisor() == WorkerSnapshot()
        assert_answers(spare)
    spare.load(spec_of("tiny-chat"))


def test_the_answers_of_another_node_have_the_time_of_the_head(ready: WorkerProcess) -> None:
    ready.lose_supervisor()
    ready.get_supervisor(welcome=False)
    ready.welcome(clock=time.time() + 3600.0)
    stream(ready, 90)
    created = json.loads(ready.received[90].data.split(b"\n\n")[0][6:])["created"]
    assert 3000 < created - time.time() < 3700


def test_a_supervisor_that_ends_before_the_worker_has_started(tmp_path: Path) -> None:
    worker = WorkerProcess(tmp_path, keeper_pid=1, mortal=True)
    try:
        worker.lose_supervisor()
        assert worker.get_supervisor() == WorkerSnapshot()
        assert_answers(worker)
    finally:
        worker.close()


def test_a_load_goes_on_without_a_supervisor(tmp_path: Path) -> None:
    with running_worker(tmp_path, mortal=True, llama_server=program(tmp_path, "slow_start")) as worker:
        worker.send(StartEngine(FAKE, age=500.0))
        assert_answers(worker)
        snapshot = worker.replace_supervisor()
        assert structs.replace(snapshot, load_age=0.0, progress=None) == WorkerSnapshot(WorkerState.LOADING, FAKE)
        assert snapshot.load_age > 500.0, "the load began before the engine was started"
        [engine] = children(worker.process.pid)

        def ready() -> EngineReady | None:
            os.kill(engine.pid, signal.SIGCONT)  # it may have been too early the last time
            return next((message for message in worker.messages if isinstance(message, EngineReady)), None)

        facts = worker.until(ready, "the engine is ready")
        worker.send(RememberState(PolicyOverrides(pinned=True, ttl=7.0)))
        assert_answers(worker)
        snapshot = worker.replace_supervisor()
        assert snapshot.last_use is not None
        assert snapshot.ready_age is not None
        assert structs.replace(snapshot, last_use=None, ready_age=None) == WorkerSnapshot(
            WorkerState.READY, FAKE, facts, remembered=PolicyOverrides(pinned=True, ttl=7.0)
        )


def test_the_snapshot_has_what_runs_and_what_has_ended(ready: WorkerProcess) -> None:
    stream(ready, 11, {**CHAT, "max_tokens": 2})
    ready.ended(11)
    stream(ready, 12)
    snapshot = ready.replace_supervisor()
    assert (snapshot.state, snapshot.spec, snapshot.facts) == (WorkerState.READY, LOOP, ready.ready)
    [attempt] = snapshot.attempts
    assert (attempt.gateway, attempt.number, attempt.attempt, attempt.weight) == (ready.gateway, 12, 1, 1)
    assert snapshot.ended[-1].key == RequestKey(ready.gateway, 11, 1)
    assert snapshot.last_use == attempt.age > 0
    began = time.monotonic()
    ready.cancel(12)
    assert ready.expect(AttemptEnded).number == 12
    last_use = ready.replace_supervisor().last_use
    assert last_use is not None
    assert last_use < time.monotonic() - began, "its end counts"


def test_ends_without_a_supervisor_are_in_the_snapshot(ready: WorkerProcess) -> None:
    for number in (21, 22, 23):
        stream(ready, number, {**CHAT, "max_tokens": 200})
    ready.lose_supervisor()
    for number in (21, 22, 23):
        ready.ended(number)
    snapshot = ready.get_supervisor()
    assert not snapshot.attempts
    assert sorted(each.number for each in snapshot.ended[-3:]) == [21, 22, 23]


def test_an_abandoned_attempt_stays_abandoned(tmp_path: Path) -> None:
    with running_worker(tmp_path, mortal=True, grace=0.2) as worker:
        worker.load(LOOP)
        worker.subscribe()
        stream(worker, 1)
        with stopped(worker.ready.engine_pid):
            worker.cancel(1)
            worker.expect(AttemptAbandoned)
            assert [each.abandoned for each in worker.replace_supervisor().attempts] == [True]
        assert worker.expect(AttemptEnded).number == 1


# Streams, and supervisors that do not answer.


def test_streams_lose_nothing_over_several_supervisors(ready: WorkerProcess) -> None:
    stream(ready, 31, {**CHAT, "max_tokens": 600})
    for number in (32, 33):
        stream(ready, number)
    for _ in range(3):
        assert {32, 33} <= set(numbers(ready.replace_supervisor()))
        assert_continues(ready, 32)
        assert_continues(ready, 33)
    # ``receive`` checks that the numbers of all events have no gap.
    assert ready.ended(31).done.output_tokens == 600
    for number in (32, 33):
        received = ready.received[number]
        ready.until(lambda received=received: sum(each.count for each in received.events) >= 600, "it has as much")
        ready.cancel(number)
    assert all(ready.received[number].text.startswith(ready.received[31].text) for number in (32, 33))


def test_a_supervisor_that_ends_without_an_answer_is_followed_by_the_next(tmp_path: Path) -> None:
    engine = program(tmp_path, "slow_generation")
    with running_worker(tmp_path, mortal=True, peer_silence=1.0, llama_server=engine) as worker:
        worker.load(FAKE)
        worker.subscribe()
        worker.run(1, "chat/completions", {**CHAT, "max_tokens": 1}, stream=True)
        assert worker.ended(1).text == " 0"
        stream(worker, 2)
        worker.lose_supervisor()
        assert numbers(worker.get_supervisor(welcome=False)) == [2]
        began = time.monotonic()
        worker.until(
            lambda: time.monotonic() > began + 1.2, "the limit for a worker that was never welcomed has passed"
        )
        worker.lose_supervisor()
        assert numbers(worker.get_supervisor()) == [2]
        assert_answers(worker)


# What the former supervisor sent, and the worker never read.


def test_a_message_that_a_spare_worker_never_read_changes_nothing(spare: WorkerProcess) -> None:
    for message in (StartEngine(LOOP), CheckModel(LOOP), Shutdown(5.0), Run("g", 1, 1, "m", "e", "l")):
        assert next_after_losing(spare, message) == WorkerSnapshot(), message
        spare.send(CheckModel(LOOP))
        spare.expect(ModelChecked)
        assert not children(spare.process.pid), message
    spare.send(StartEngine(LOOP))
    wait_for(lambda: children(spare.process.pid), "the engine is started")


def test_a_run_that_was_never_read_is_not_run(ready: WorkerProcess) -> None:
    run = Run(ready.gateway, 41, 1, "asked-for", "chat/completions", "req-41", stream=True)
    snapshot = next_after_losing(ready, run, b'{"messages": []}')
    assert not snapshot.attempts
    assert RequestKey(ready.gateway, 41, 1) not in [each.key for each in snapshot.ended]
    stream(ready, 42)
    assert 41 not in ready.received


def test_a_cancellation_that_was_never_read_is_sent_again(ready: WorkerProcess) -> None:
    stream(ready, 51)
    assert numbers(next_after_losing(ready, Cancel(ready.gateway, 51, 1, "cancelled"))) == [51]
    assert_continues(ready, 51)
    ready.cancel(51)
    assert ready.expect(AttemptEnded).number == 51


def test_a_shutdown_that_was_never_read_ends_nothing(ready: WorkerProcess) -> None:
    snapshot = next_after_losing(ready, Shutdown(0.0))
    assert snapshot.state is WorkerState.READY
    stream(ready, 61, {**CHAT, "max_tokens": 2})
    assert ready.ended(61).done.output_tokens == 2


def test_a_run_that_is_sent_again_starts_nothing(ready: WorkerProcess) -> None:
    stream(ready, 71)
    ready.replace_supervisor()
    ready.run(71, "chat/completions", {**CHAT, "max_tokens": 1}, stream=True)
    assert_answers(ready)
    assert_continues(ready, 71)
    assert ready.received[71].end is None
