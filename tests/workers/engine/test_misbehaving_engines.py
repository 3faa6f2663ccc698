"""A real worker with engines that misbehave: while they load, with their connections, with memory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from protocol.failures import Code
from protocol.messages.engines import (
    EngineDied,
    EngineReady,
    LoadFailed,
    LoadProgressed,
    LoadStage,
    MemoryMeasured,
    StartEngine,
)
from protocol.messages.work import AttemptEnded
from tests.fake_engines.llama_server import ANSWER, program
from tests.support import processes
from tests.support.clients.http_client import RawHttpClient
from tests.support.waiting import wait_for
from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import CHAT, WorkerProcess, running_worker
from workers.worker.engine_monitor import MEMORY_CHECK_INTERVAL_S

MIB = 1024 * 1024
SPEC = structs.replace(spec_of("tiny-chat"), backend="system")


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[WorkerProcess]:
    engine = program(tmp_path, "allocates_memory")
    with running_worker(tmp_path, llama_server=engine, memory_limit=256 * MIB) as one:
        yield one


def started_engine(worker: WorkerProcess) -> processes.ProcessInfo | None:
    """Return the worker's engine once it runs its own program; until then, the worker waits for that."""
    return next((each for each in processes.children(worker.process.pid) if each.mentions("--port")), None)


def test_an_engine_that_is_stopped_while_it_loads_fails_its_load(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "never_ready"), silence=0.5) as one:
        one.send(StartEngine(SPEC))
        engine = wait_for(lambda: started_engine(one), "the engine's program runs").pid
        processes.stop(engine)
        failed = one.expect(LoadFailed, 10)
        assert failed.started
        assert failed.failure.code == Code.LOAD_FAILED
        assert "made no progress for 0.5 s" in failed.failure.message
        assert not processes.alive(engine)
        one.load(spec_of("tiny-chat"))


def test_an_engine_that_works_while_it_loads_is_left_alone(tmp_path: Path) -> None:
    busy = tmp_path / "busy-engine"
    busy.write_text("#!/bin/sh\nwhile :; do :; done\n")
    busy.chmod(0o700)
    with running_worker(tmp_path, llama_server=str(busy), silence=0.5, load_timeout=1.5) as one:
        one.send(StartEngine(SPEC))
        failed = one.expect(LoadFailed, 10)
        assert "did not become ready" in failed.failure.message
        assert "not ready within 1.5 s" in failed.failure.detail


def test_the_stages_of_a_load_are_reported_once_each(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "loading_answers")) as one:
        one.send(StartEngine(SPEC))
        assert one.expect(LoadProgressed, 20) == LoadProgressed(LoadStage.LOADING)
        assert one.expect(LoadProgressed) == LoadProgressed(LoadStage.WARMING_UP)
        one.expect(EngineReady)


def test_an_engine_that_does_not_tell_which_slots_are_busy_is_not_used(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "no_slots_endpoint")) as one:
        one.send(StartEngine(SPEC))
        failed = one.expect(LoadFailed, 10)
        assert "/slots was answered with 501" in failed.failure.detail


@pytest.mark.parametrize("stream", [True, False])
def test_a_connection_that_breaks_before_the_first_token_may_be_retried(tmp_path: Path, stream: bool) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "drops_connection")) as one:
        ready = one.load(SPEC)
        one.subscribe()
        one.run(1, "chat/completions", CHAT, stream=stream)
        failure = one.ended(1).failure
        assert (failure.code, failure.tokens_sent) == (Code.CONNECTION_LOST, 0)
        assert one.expect(AttemptEnded).code == Code.CONNECTION_LOST
        one.run(2, "chat/completions", CHAT, stream=True)
        assert one.ended(2).text == ANSWER
        assert processes.alive(ready.engine_pid)


def test_an_engine_may_end_its_responses_by_closing(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "answers_until_close")) as one:
        one.load(SPEC)
        one.subscribe()
        one.run(1, "chat/completions", CHAT, stream=True)
        assert one.ended(1).text == ANSWER
        one.run(2, "chat/completions", CHAT)
        assert ANSWER in one.ended(2).data.decode()


def test_an_engine_that_uses_too_much_memory_is_ended(limited: WorkerProcess) -> None:
    limited.load(SPEC)
    limited.subscribe()
    limited.run(1, "chat/completions", CHAT)
    failure = limited.ended(1).failure
    assert failure.code == Code.OUT_OF_MEMORY
    assert "more than memory_limit allows (0.27 GB)" in failure.message
    assert limited.expect(EngineDied).failure.code == Code.OUT_OF_MEMORY


def test_memory_is_taken_from_an_engine_first(chat: WorkerProcess) -> None:
    def score(pid: int | str) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    assert score(chat.ready.engine_pid) > score(chat.process.pid) > score("self")


def test_each_engine_has_a_key_of_its_own(chat: WorkerProcess) -> None:
    port = int(chat.ready.backend_url.rpartition(":")[2])
    assert RawHttpClient(port).get("/slots").status == 401
    assert RawHttpClient(port).get("/health").status == 200
    first = processes.engine_key(chat.ready.engine_pid)
    assert RawHttpClient(port, {"Authorization": f"Bearer {first}"}).get("/slots").status == 200
    assert first not in Path(f"/proc/{chat.ready.engine_pid}/cmdline").read_text()
    os.kill(chat.ready.engine_pid, signal.SIGKILL)
    chat.expect(EngineDied)
    assert processes.engine_key(chat.load(spec_of("tiny-chat")).engine_pid) != first


def test_memory_that_an_engine_takes_for_a_request_is_reported_while_it_works(tmp_path: Path) -> None:
    with running_worker(tmp_path, llama_server=program(tmp_path, "allocates_memory")) as one:
        ready = one.load(SPEC)
        one.subscribe()
        one.receive(2 * MEMORY_CHECK_INTERVAL_S)  # the readings of the load are over
        one.run(1, "chat/completions", CHAT)
        measured = one.expect(MemoryMeasured)
        os.kill(ready.engine_pid, signal.SIGKILL)
        assert ready.memory_difference is not None
        assert measured.memory_difference >= ready.memory_difference + 4 * MIB
        assert one.ended(1).failure.code == Code.BACKEND_DIED
