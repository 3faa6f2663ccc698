"""When something cannot be done, the call ends and the supervisor continues."""

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

from protocol import VERSION
from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.messages.caller import Caller
from protocol.messages.calls import CallResult
from protocol.messages.health import GetHealth
from protocol.messages.model_files import DeleteModel, PullModel
from protocol.messages.peers import Peer
from protocol.messages.work import Refused, ReserveRequest, SubmitRequest
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from protocol.wire.bus_address import BusAddress
from protocol.wire.endpoints import RuntimeDirectory
from supervisor.bus import worker_barrier
from supervisor.bus.sockets import BindError, SupervisorBus
from supervisor.handlers.models import downloads
from supervisor.handlers.models.deletion import Deletions
from supervisor.lifecycle.succession import _HandOver
from supervisor.lifecycle.supervisor import Supervisor
from supervisor.processes import child_processes
from supervisor.runtime import jobs
from supervisor.runtime.handler_table import merge_handlers
from supervisor.scheduler.effects import AnswerCall, FetchModel, SendMessage, SpawnWorker


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="lb-") as folder:
        runtime = RuntimeDirectory(Path(folder) / "r")
        settings = Settings(state_dir=folder, cache_dir=folder, runtime_dir=str(runtime.path))
        loop = Loop()
        made = Supervisor(settings, ProcessContext(runtime.path, os.urandom(6).hex(), os.getpid()), loop, -1)
        made.components.peers.add(Peer("gateway", "g1", os.getpid()), 0.0)
        made.components.bus.listen(lambda *_: None, lambda _: None, lambda _: None, lambda *_: None)
        yield made
        made.components.scheduler.close()  # it starts a worker where one is missing
        made.components.processes.kill_all()
        run_loop_until(made, lambda: len(made.components.processes) == 0)
        made.components.state_writer.close()
        made.components.bus.close()
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

    monkeypatch.setattr(supervisor.components.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    monkeypatch.setattr(supervisor.components.scheduler, "reconcile", lambda _now: went_on.append(True))
    monkeypatch.setitem(supervisor.components.messages._handlers, type(message), fails)
    supervisor.components.messages.received("g1", message, b"")
    ((peer, answer),) = sent
    assert (peer, type(answer), answer.number) == ("g1", Refused, 7)
    assert answer.attempt == attempt
    assert supervisor.components.errors.count == isinstance(problem, RuntimeError)
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
    monkeypatch.setattr(supervisor.components.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))

    def fails(_now: float) -> None:
        supervisor.components.scheduler._state.emit(AnswerCall("g1", 3, []))
        raise KeyError("half way")

    monkeypatch.setattr(supervisor.components.scheduler, "reconcile", fails)
    supervisor.components.decisions.reconcile()
    assert sent == [("g1", CallResult(3))]
    assert supervisor.components.errors.count == 1
    assert not supervisor.components.scheduler._state.settled, "the next event looks at everything again"


def test_the_memory_is_not_read_for_a_request_if_nothing_waits_or_moves(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions, state = supervisor.components.decisions, supervisor.components.scheduler._state
    reads: list[float] = []
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(decisions, "_read_memory", reads.append)
    monkeypatch.setattr(supervisor.components.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    state.settled = True
    state.emit(AnswerCall("g1", 3, []))
    decisions.suspended = True
    decisions.reconcile_unless_settled()
    assert not sent, "another supervisor is taken over from"
    decisions.suspended = False
    decisions.reconcile_unless_settled()
    assert (sent, reads) == ([("g1", CallResult(3))], [])
    state.settled = False
    decisions.reconcile_unless_settled()
    assert len(reads) == 1


def test_an_effect_that_cannot_be_carried_out_stops_no_other(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(supervisor.components.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    monkeypatch.setattr(supervisor.components.effects, "_fetch", lambda _model: {}["nothing"])
    supervisor.components.effects.execute([FetchModel("m"), AnswerCall("g1", 3, [])])
    assert sent == [("g1", CallResult(3))]
    assert supervisor.components.errors.count == 1


def test_two_handlers_of_one_message_are_an_error() -> None:
    assert merge_handlers([{GetHealth: len}, {SubmitRequest: len}]) == {GetHealth: len, SubmitRequest: len}
    with pytest.raises(TypeError, match="GetHealth has two handlers: len and print"):
        merge_handlers([{GetHealth: len}, {GetHealth: print}])


def test_a_deletion_whose_step_raises_ends_and_its_model_can_be_used_again(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[str, Any]] = []
    name = "SmolLM2-135M-Instruct-GGUF"
    monkeypatch.setattr(supervisor.components.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    monkeypatch.setattr(Deletions, "_known", lambda *_: True)
    for problem in (OSError(errno.EIO, os.strerror(errno.EIO)), RuntimeError("half way")):

        def fails(*_: object, problem: Exception = problem) -> None:
            raise problem

        monkeypatch.setattr(supervisor.components.models, "others", fails)
        supervisor.components.messages.handle("g1", DeleteModel(5, name), b"")
        assert supervisor.components.models.deleting == set()
        peer, answer = sent.pop()
        assert (peer, type(answer), answer.failure.code) == ("g1", Refused, Code.INTERNAL)
    assert supervisor.components.models.resolve(name).name == name


@pytest.fixture
def full_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(child_processes.subprocess, "Popen", start)


@pytest.mark.usefixtures("full_machine")
def test_a_job_that_cannot_be_started_has_ended(supervisor: Supervisor) -> None:
    ended: list[tuple[str, str]] = []
    job = supervisor.components.jobs.start("x", lambda job, why: ended.append((job, why)))
    supervisor.components.jobs.kill(job)
    assert ended == []
    supervisor.components.loop.run_once(0.0)
    assert ended == [(job, "it could not be started: Resource temporarily unavailable")]


def run_loop_until(supervisor: Supervisor, done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10.0
    while not done():
        assert time.monotonic() < deadline
        supervisor.components.loop.run_once(0.05)


def test_a_job_that_never_reports_is_killed(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "HELLO_TIMEOUT_S", 0.05)
    ended: list[str] = []
    supervisor.components.jobs.start("workers.jobs.pull", lambda _job, why: ended.append(why))
    run_loop_until(supervisor, lambda: ended)
    assert ended == ["SIGKILL"]
    assert not supervisor.components.jobs.names()


@pytest.mark.parametrize("hands_over", [False, True])
def test_processes_that_have_ended_are_not_waited_for(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, *, hands_over: bool
) -> None:
    monkeypatch.setattr(worker_barrier, "BARRIER_TIMEOUT_S", 3600.0)
    components = supervisor.components
    job = components.jobs.start("workers.jobs.pull", lambda *_: None)
    ends: dict[str, Callable[[], None]] = {
        "w1": lambda: components.workers.on_ended("w1", "SIGKILL"),
        "g1": lambda: supervisor._peer_components.gateway_ends.gone("g1"),
        job: lambda: components.jobs.kill(job),
    }
    over: list[bool] = []
    components.barrier.wait(ends, lambda: over.append(True))
    if hands_over:
        components.messages.begin(_HandOver(components.barrier))
    for end in ends.values():
        assert not over
        end()
    run_loop_until(supervisor, lambda: over)


def test_a_job_of_another_version_is_killed(supervisor: Supervisor) -> None:
    ended: list[str] = []
    job = supervisor.components.jobs.start("workers.jobs.pull", lambda _job, why: ended.append(why))
    supervisor._peer_components.other_versions.received(job, VERSION + 1)
    run_loop_until(supervisor, lambda: ended)
    assert ended == ["SIGKILL"]


@pytest.mark.usefixtures("full_machine")
def test_a_worker_that_cannot_be_started_has_ended(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: list[tuple[str, Failure]] = []
    monkeypatch.setattr(
        supervisor.components.scheduler, "worker_gone", lambda worker, failure, _now: gone.append((worker, failure))
    )
    monkeypatch.setattr(supervisor.components.scheduler, "reconcile", lambda _now: None)
    supervisor.components.effects.execute([SpawnWorker("w1")])
    supervisor.components.loop.run_once(0.0)
    ((worker, failure),) = gone
    assert worker == "w1"
    assert "could not be started: Resource temporarily unavailable" in failure.message


def test_the_number_of_downloads_is_bounded(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(downloads.MAX_DOWNLOADS):
        supervisor.components.download_registry.begin(f"j{number}", f"m{number}", [], None, None)
    started: list[str] = []
    monkeypatch.setattr(supervisor.components.jobs, "start", lambda *_: started.append("one more"))
    sent: list[tuple[str, Any]] = []
    monkeypatch.setattr(supervisor.components.bus, "send", lambda peer, answer, *_: sent.append((peer, answer)))
    supervisor.components.messages.handle("g1", PullModel(1, "SmolLM2-135M-Instruct-GGUF"), b"")
    ((_, answer),) = sent
    assert (answer.failure.code, answer.failure.http_status) == (Code.OVERLOADED, 503)
    assert answer.failure.retry_after
    assert started == []
    supervisor.components.messages.handle("g1", PullModel(1, "m0"), b"")
    assert len(supervisor.components.download_registry.of_job("j0").waiters) == 1  # type: ignore[union-attr]


def test_second_attempts_are_counted_by_their_reason_and_requests_by_their_key(supervisor: Supervisor) -> None:
    first = SubmitRequest(7, 1, "no-model", "chat/completions", "r.1", caller=Caller("ci"))
    again = SubmitRequest(7, 2, "no-model", "chat/completions", "r.1", caller=Caller("ci"), retry_reason="backend_died")
    for message in (first, again):
        supervisor.components.messages.handle("g1", message, b"")
    assert supervisor.components.metrics.retries.values == {("backend_died",): 1}
    assert supervisor.components.metrics.key_requests.values == {("ci",): 1}
    assert supervisor.components.metrics.refusals.values == {("model_not_found",): 2}


def test_a_reserved_request_is_counted_once_and_one_that_is_refused_then_too(supervisor: Supervisor) -> None:
    supervisor.components.messages.handle(
        "g1", ReserveRequest(7, "no-model", "chat/completions", Caller("refused")), b""
    )
    assert supervisor.components.metrics.refusals.values == {("model_not_found",): 1}
    [effect] = supervisor.components.scheduler.effects()
    assert isinstance(effect, SendMessage)
    assert (effect.peer, effect.message.number, effect.message.attempt) == ("g1", 7, 0)  # type: ignore[attr-defined]
    caller, model = Caller("ci", requests_per_minute=2), "SmolLM2-135M-Instruct-GGUF"
    supervisor.components.messages.handle("g1", ReserveRequest(8, model, "chat/completions", caller), b"")
    come = SubmitRequest(9, 1, model, "chat/completions", "r.1", caller=caller, reservation=8)
    supervisor.components.messages.handle("g1", come, b"")
    assert supervisor.components.metrics.key_requests.values == {("refused",): 1, ("ci",): 1}


def test_sockets_that_cannot_be_made_are_an_error_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(BindError, match="none"):
        SupervisorBus(Loop(), BusAddress(tmp_path / "none"), "b")
