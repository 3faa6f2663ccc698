"""What the supervisor does when something cannot be done: the call ends, the supervisor goes on."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol import VERSION, ids
from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError
from protocol.messages.calls import CallResult
from protocol.messages.health import GetHealth, StatsReport
from protocol.messages.model_files import DeleteModel
from protocol.messages.peers import Peer
from protocol.messages.work import Caller, Refused, ReserveRequest, SubmitRequest
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.bus.sockets import BindError, SupervisorBus
from supervisor.handlers import requests
from supervisor.handlers.models import downloads
from supervisor.handlers.models.deletion import Deletions
from supervisor.handlers.requests import MAX_STATS
from supervisor.processes import child_processes
from supervisor.processes.download_registry import DownloadWaiter
from supervisor.runtime import jobs
from supervisor.runtime.handler_table import merge_handlers
from supervisor.runtime.supervisor import Supervisor
from supervisor.scheduler.effects import AnswerCall, FetchModel, SendMessage, SpawnWorker


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lb-") as folder:
        runtime = RuntimeDirectory(Path(folder) / "r")
        settings = Settings(state_dir=folder, cache_dir=folder, runtime_dir=str(runtime.path))
        loop = Loop()
        made = Supervisor(settings, ProcessContext(runtime.path, ids.boot_id(), os.getpid()), loop, -1)
        made.peers.add(Peer("gateway", "g1", os.getpid()), 0.0)
        made.bus.listen(lambda *_: None, lambda _: None, lambda _: None, lambda *_: None)
        yield made
        made.scheduler.close()  # it starts a worker where one is missing
        made.processes.kill_all()
        run_loop_until(made, lambda: len(made.processes) == 0)
        made.state_writer.close()
        made.bus.close()
        loop.close()
        runtime.release()


@pytest.mark.parametrize(
    ("message", "attempt"),
    [(GetHealth(7), 0), (SubmitRequest(7, 2, "m", "chat/completions", "label", 1, 2), 2)],
)
@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (OSError(errno.EIO, os.strerror(errno.EIO), "/secret/path"), "Input/output error"),
        (Failure(Code.CONFLICT, "no, not now").raised(), "no, not now"),
        (RuntimeError("/secret/path"), "an internal error"),
    ],
)
def test_a_failed_call_affects_no_other(
    supervisor: Supervisor,
    monkeypatch: pytest.MonkeyPatch,
    message: msgspec.Struct,
    attempt: int,
    problem: Exception,
    expected: str,
) -> None:
    sent: list[tuple[str, Any]] = []
    went_on: list[bool] = []

    def fails(*_: object) -> None:
        raise problem

    monkeypatch.setattr(supervisor.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    for way in ("reconcile", "reconcile_unless_settled"):
        monkeypatch.setattr(supervisor.scheduler, way, lambda _now: went_on.append(True))
    monkeypatch.setitem(supervisor._handlers, type(message), fails)
    supervisor.received("g1", message, b"")
    ((peer, answer),) = sent
    assert (peer, type(answer), answer.number) == ("g1", Refused, 7)
    assert answer.attempt == attempt
    assert supervisor.errors.count == isinstance(problem, RuntimeError)
    if isinstance(problem, RuntimeError):
        assert answer.failure.code is Code.INTERNAL
        assert "RuntimeError: /secret/path" in answer.failure.detail, "for the log of the gateway"
    assert expected in answer.failure.message
    assert "/secret" not in answer.failure.message
    assert went_on


def test_an_exception_in_the_scheduler_is_counted_and_what_it_decided_is_carried_out(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(supervisor.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))

    def fails(_now: float) -> None:
        supervisor.scheduler.emit(AnswerCall("g1", 3, []))
        raise KeyError("half way")

    monkeypatch.setattr(supervisor.scheduler, "reconcile", fails)
    supervisor.reconcile()
    assert sent == [("g1", CallResult(3))]
    assert supervisor.errors.count == 1
    assert not supervisor.scheduler.settled, "the next event looks at everything again"


def test_an_effect_that_cannot_be_carried_out_stops_no_other(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(supervisor.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    monkeypatch.setattr(supervisor.effect_executor, "fetch", lambda _model: {}["nothing"])
    supervisor.effect_executor.execute([FetchModel("m"), AnswerCall("g1", 3, [])])
    assert sent == [("g1", CallResult(3))]
    assert supervisor.errors.count == 1


def test_two_handlers_of_one_message_are_an_error() -> None:
    assert merge_handlers([{GetHealth: len}, {SubmitRequest: len}]) == {GetHealth: len, SubmitRequest: len}
    with pytest.raises(TypeError, match="GetHealth has two handlers: len and print"):
        merge_handlers([{GetHealth: len}, {GetHealth: print}])


def test_a_deletion_whose_step_raises_ends_and_its_model_can_be_used_again(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, Any]] = []
    name = "SmolLM2-135M-Instruct-GGUF"
    monkeypatch.setattr(supervisor.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    deletions = Deletions()
    monkeypatch.setattr(deletions, "_known", lambda *_: True)
    for problem in (OSError(errno.EIO, os.strerror(errno.EIO)), RuntimeError("half way")):

        def fails(*_: object, problem: Exception = problem) -> None:
            raise problem

        monkeypatch.setattr(supervisor.models, "others", fails)
        deletions.handlers()[DeleteModel](supervisor, "g1", DeleteModel(5, name), b"")
        assert supervisor.models.deleting == set()
        peer, answer = sent.pop()
        assert (peer, type(answer), answer.failure.code) == ("g1", Refused, Code.INTERNAL)
    assert supervisor.models.resolve(name).name == name


def test_figures_are_kept_of_a_bounded_number_of_models(supervisor: Supervisor) -> None:
    for number in range(MAX_STATS + 10):
        requests.remember_stats(supervisor, StatsReport(f"m{number}"))
    requests.remember_stats(supervisor, StatsReport("m20"))
    requests.remember_stats(supervisor, StatsReport("new"))
    assert len(supervisor.stats_by_model) == MAX_STATS
    assert list(supervisor.stats_by_model)[-2:] == ["m20", "new"]
    assert "m10" not in supervisor.stats_by_model


@pytest.fixture
def full_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(child_processes.subprocess, "Popen", start)


@pytest.mark.usefixtures("full_machine")
def test_a_job_that_cannot_be_started_has_ended(supervisor: Supervisor) -> None:
    ended: list[tuple[str, str]] = []
    job, child = jobs.start(supervisor, "x", lambda _supervisor, job, why: ended.append((job, why)))
    supervisor.processes.kill(child)
    assert (child.pid, ended) == (0, [])
    supervisor.loop.run_once(0.0)
    assert ended == [(job, "it could not be started: Resource temporarily unavailable")]


def run_loop_until(supervisor: Supervisor, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10.0
    while not done():
        assert time.monotonic() < deadline
        supervisor.loop.run_once(0.05)


def test_a_job_that_never_reports_is_killed(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "HELLO_TIMEOUT_S", 0.05)
    ended: list[str] = []
    jobs.start(supervisor, "workers.jobs.pull", lambda _supervisor, _job, why: ended.append(why))
    run_loop_until(supervisor, lambda: ended)
    assert ended == ["SIGKILL"]
    assert not supervisor.job_processes


def test_a_job_of_another_version_is_killed(supervisor: Supervisor) -> None:
    ended: list[str] = []
    job, _ = jobs.start(supervisor, "workers.jobs.pull", lambda _supervisor, _job, why: ended.append(why))
    supervisor.other_version(job, VERSION + 1)
    run_loop_until(supervisor, lambda: ended)
    assert ended == ["SIGKILL"]


@pytest.mark.usefixtures("full_machine")
def test_a_worker_that_cannot_be_started_has_ended(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[tuple[str, Failure]] = []
    monkeypatch.setattr(
        supervisor.scheduler, "worker_gone", lambda worker, failure, _now: gone.append((worker, failure))
    )
    monkeypatch.setattr(supervisor.scheduler, "reconcile", lambda _now: None)
    supervisor.effect_executor.execute([SpawnWorker("w1")])
    supervisor.loop.run_once(0.0)
    ((worker, failure),) = gone
    assert worker == "w1"
    assert "could not be started: Resource temporarily unavailable" in failure.message


def test_the_number_of_downloads_is_bounded(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_second_attempts_are_counted_by_their_reason_and_requests_by_their_key(supervisor: Supervisor) -> None:
    first = SubmitRequest(7, 1, "no-model", "chat/completions", "r.1", caller=Caller("ci"))
    again = SubmitRequest(7, 2, "no-model", "chat/completions", "r.1", caller=Caller("ci"), retry_reason="backend_died")
    for message in (first, again):
        requests.submit(supervisor, "g1", message, b"")
    assert supervisor.metrics.retries.values == {("backend_died",): 1}
    assert supervisor.metrics.key_requests.values == {("ci",): 1}
    assert supervisor.metrics.refusals.values == {("model_not_found",): 2}


def test_a_reserved_request_is_counted_once_and_one_that_is_refused_then_too(supervisor: Supervisor) -> None:
    requests.reserve(supervisor, "g1", ReserveRequest(7, "no-model", "chat/completions", Caller("refused")), b"")
    assert supervisor.metrics.refusals.values == {("model_not_found",): 1}
    [effect] = supervisor.scheduler.effects()
    assert isinstance(effect, SendMessage)
    assert (effect.peer, effect.message.number, effect.message.attempt) == ("g1", 7, 0)  # type: ignore[attr-defined]
    caller, model = Caller("ci", requests_per_minute=2), "SmolLM2-135M-Instruct-GGUF"
    requests.reserve(supervisor, "g1", ReserveRequest(8, model, "chat/completions", caller), b"")
    come = SubmitRequest(9, 1, model, "chat/completions", "r.1", caller=caller, reservation=8)
    requests.submit(supervisor, "g1", come, b"")
    assert supervisor.metrics.key_requests.values == {("refused",): 1, ("ci",): 1}


def test_sockets_that_cannot_be_made_are_an_error_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(BindError, match="none"):
        SupervisorBus(Loop(), tmp_path / "none", "b")
