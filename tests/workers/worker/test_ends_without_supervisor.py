"""A real worker that ends, or whose engine dies, while no supervisor lives: the next supervisor gets the report."""

from __future__ import annotations

import subprocess
from pathlib import Path

from msgspec import msgpack, structs

from protocol.failures import Code
from protocol.ids import RequestKey
from protocol.messages.engines import EngineDied, LoadFailed, StartEngine
from protocol.messages.peers import Shutdown
from protocol.messages.recovery import WorkerSnapshot
from protocol.worker_states import WorkerState
from tests.fake_engines.llama_server import program
from tests.support.processes import alive, children, kill
from tests.support.waiting import wait_for
from tests.workers.worker.replaced_supervisor import FAKE, LOOP, assert_answers, stream
from tests.workers.worker_process import CHAT, WorkerProcess, running_worker


def test_a_worker_that_no_supervisor_has_ever_answered_ends(tmp_path: Path) -> None:
    with running_worker(tmp_path, mortal=True, welcome=False, peer_silence=0.5) as worker:
        worker.lose_supervisor()
        assert worker.process.wait(10) == 1


def test_the_keepers_end_is_the_servers_end(tmp_path: Path) -> None:
    with (
        subprocess.Popen(["sleep", "600"]) as keeper,
        running_worker(tmp_path, keeper.pid, mortal=True, grace=0.3) as worker,
    ):
        worker.load(LOOP)
        worker.subscribe()
        stream(worker, 1)
        worker.lose_supervisor()
        keeper.kill()
        assert worker.ended(1).failure.code == Code.SUPERVISOR_LOST
        assert worker.process.wait(5) == 0
        assert not alive(worker.ready.engine_pid)


def test_an_engine_that_dies_without_a_supervisor_is_reported_to_the_next(spare: WorkerProcess) -> None:
    spare.load(LOOP)
    spare.subscribe()
    stream(spare, 1)
    spare.lose_supervisor()
    kill(spare.ready.engine_pid)
    assert spare.ended(1).failure.code == Code.BACKEND_DIED
    for _ in range(2):
        snapshot = spare.get_supervisor()
        assert (snapshot.state, snapshot.facts, snapshot.attempts) == (WorkerState.READY, spare.ready, [])
        assert [each.key for each in snapshot.ended] == [RequestKey(spare.gateway, 1, 1)]
        assert spare.expect(EngineDied).failure.code == Code.BACKEND_DIED
        assert_answers(spare)
        spare.lose_supervisor()
    spare.get_supervisor()
    for _ in range(2):
        assert_answers(spare)
    snapshot = spare.replace_supervisor()
    assert (snapshot.state, snapshot.spec, snapshot.facts) == (WorkerState.ENGINE_LOST, LOOP, None)
    assert_answers(spare)
    assert not [message for message in spare.messages if isinstance(message, EngineDied)]
    spare.load(LOOP)
    assert spare.replace_supervisor().state is WorkerState.READY


def test_a_load_that_fails_without_a_supervisor_is_reported_to_the_next(tmp_path: Path) -> None:
    with running_worker(tmp_path, mortal=True, llama_server=program(tmp_path, "never_ready")) as worker:
        worker.send(StartEngine(FAKE))
        [engine] = wait_for(lambda: children(worker.process.pid), "the engine is started")
        worker.lose_supervisor()
        kill(engine.pid)
        wait_for(lambda: not alive(engine.pid), "the engine is gone")
        snapshot = structs.replace(worker.get_supervisor(), load_age=0.0, progress=None)
        assert snapshot == WorkerSnapshot(WorkerState.LOADING, FAKE)
        failed = worker.expect(LoadFailed)
        assert failed.started
        assert "SIGKILL" in failed.failure.detail
        for _ in range(2):
            assert_answers(worker)
        assert worker.replace_supervisor() == WorkerSnapshot()


def test_a_worker_that_leaves_says_so(spare: WorkerProcess) -> None:
    spare.load(LOOP)
    spare.subscribe()
    stream(spare, 1)
    spare.send(Shutdown(60.0))
    assert_answers(spare)
    snapshot = spare.replace_supervisor()
    assert (snapshot.state, snapshot.spec, [each.number for each in snapshot.attempts]) == (
        WorkerState.LEAVING,
        LOOP,
        [1],
    )
    spare.cancel(1)
    assert spare.process.wait(10) == 0


def test_a_supervisor_of_another_version_can_end_a_worker_after_its_requests(spare: WorkerProcess) -> None:
    def frame(line: bytes, head: dict[str, object]) -> bytes:
        packed = msgpack.encode(head)
        return line + b"\n" + len(packed).to_bytes(4, "big") + packed

    spare.load(LOOP)
    spare.subscribe()
    stream(spare, 1, {**CHAT, "max_tokens": 600})
    spare.lose_supervisor()
    spare.get_supervisor(welcome=False)
    for sent in (
        frame(b"LB0 Welcome", {"boot": spare.boot, "pid": spare.supervisor.pid, "of_a_later_version": 1}),
        frame(b"LB99 Cancel", {"gateway": spare.gateway, "number": 1, "attempt": 1, "reason": "cancelled"}),
        frame(b"LB0 Shutdown", {"grace": 1e9, "reason": "replaced", "of_a_later_version": [1]}),
    ):
        spare.supervisor.router.send_multipart([spare.name.encode(), sent])
    assert spare.ended(1).done.output_tokens == 600
    assert spare.process.wait(10) == 0
