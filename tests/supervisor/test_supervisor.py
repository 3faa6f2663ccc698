"""What the house does when something cannot be done: the call ends, the house goes on."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol import ids
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.admin import GetHealth, Peer
from protocol.messages.work import Refused, SubmitRequest
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.handlers import downloads
from supervisor.runtime import jobs, processes
from supervisor.runtime.download_registry import DownloadWaiter
from supervisor.runtime.supervisor import Supervisor
from supervisor.scheduler.effects import SpawnWorker


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lb-") as folder:
        runtime = RuntimeDirectory(Path(folder) / "r")
        settings = Settings(state_dir=folder, cache_dir=folder, runtime_dir=str(runtime.path))
        loop = Loop()
        made = Supervisor(settings, ProcessContext(runtime.path, ids.boot_id(), os.getpid()), loop, -1)
        made.peers.add(Peer("gateway", "g1", os.getpid()), 0.0)
        made.bus.listen(lambda *_: None, lambda _: None, lambda _: None)
        yield made
        made.bus.close()
        loop.close()
        runtime.release()


@pytest.mark.parametrize(
    ("message", "attempt"),
    [(GetHealth(7), 0), (SubmitRequest(7, 2, "m", "chat/completions", "label", 1, 2), 2)],
)
@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (OSError(errno.EIO, os.strerror(errno.EIO), "/secret/place"), "Input/output error"),
        (Failure(Code.CONFLICT, "no, not now").raised(), "no, not now"),
    ],
)
def test_a_failed_call_affects_no_other(
    supervisor: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
    message: msgspec.Struct,
    attempt: int,
    problem: Exception,
    said: str,
) -> None:
    sent: list[tuple[str, Any]] = []
    went_on: list[bool] = []

    def fails(*_: object) -> None:
        raise problem

    monkeypatch.setattr(supervisor.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    for way in ("reconcile", "reconcile_unless_settled"):
        monkeypatch.setattr(supervisor.scheduler, way, lambda _now: went_on.append(True))
    monkeypatch.setitem(supervisor._handlers, type(message), fails)
    supervisor._received("g1", message, b"")
    ((peer, answer),) = sent
    assert (peer, type(answer), answer.number) == ("g1", Refused, 7)
    assert answer.attempt == (attempt if isinstance(problem, OSError) else 0)
    assert said in answer.failure.message
    assert "/secret" not in answer.failure.message
    assert went_on


@pytest.fixture
def full_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(processes.subprocess, "Popen", start)


@pytest.mark.usefixtures("full_machine")
def test_a_job_that_cannot_be_started_has_died(supervisor: Supervisor) -> None:
    ended: list[tuple[str, str]] = []
    job, child = jobs.start(supervisor, "x", lambda _supervisor, job, why: ended.append((job, why)))
    supervisor.processes.kill(child)
    assert (child.pid, ended) == (0, [])
    supervisor.loop.turn(0.0)
    assert ended == [(job, "it could not be started: Resource temporarily unavailable")]


@pytest.mark.usefixtures("full_machine")
def test_a_worker_that_cannot_be_started_has_died(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[tuple[str, Failure]] = []
    monkeypatch.setattr(
        supervisor.scheduler, "worker_gone", lambda worker, failure, _now: gone.append((worker, failure))
    )
    monkeypatch.setattr(supervisor.scheduler, "reconcile", lambda _now: None)
    supervisor.perform([SpawnWorker("w1")])
    supervisor.loop.turn(0.0)
    ((worker, failure),) = gone
    assert worker == "w1"
    assert "could not be started: Resource temporarily unavailable" in failure.message


def test_so_many_downloads_and_no_more(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(downloads.MAX_DOWNLOADS):
        supervisor.downloads.begin(f"j{number}", f"m{number}", [], None, None)
    started: list[str] = []
    monkeypatch.setattr(jobs, "start", lambda *_: started.append("one more"))
    with pytest.raises(LemonbusError) as caught:
        downloads.fetch(supervisor, "SmolLM2-135M-Instruct-GGUF")
    assert (caught.value.failure.code, caught.value.failure.http_status) == (Code.OVERLOADED, 503)
    assert caught.value.failure.retry_after
    assert started == []
    downloads.fetch(supervisor, "m0", DownloadWaiter("g1", 1, False))
    assert len(supervisor.downloads.of_job("j0").waiters) == 1  # type: ignore[union-attr]
