"""A programming error of ours ends one request, with the traceback in the log, and nothing else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from protocol.config.settings import Settings
from protocol.failures import Code, Failure
from protocol.ids import RequestKey, topic
from protocol.messages.engines import CheckModel, LoadFailed
from protocol.messages.events import failure_of
from protocol.messages.work import AttemptEnded, Run
from protocol.models.recipes import ModelSpec
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from tests.workers.backend_stand_in import backend_stand_in
from tests.workers.fake_worker_bus import FakeWorkerBus
from workers.backends import registry
from workers.requests.worker_requests import WorkerRequests, possible_causes
from workers.worker.control import WorkerController


def failing_backend() -> Any:
    def request(*_: object) -> None:
        raise RuntimeError("a bug")

    return backend_stand_in(servers=(), slots=4, sampling={}, request=request)


def ready_session() -> Any:
    """A session with an engine that fails every request."""
    engine, spec = SimpleNamespace(read_output=lambda: None), SimpleNamespace(name="m")
    return SimpleNamespace(backend=failing_backend(), spec=spec, pool=None, monitor=None, engine=engine)


@pytest.fixture
def worker() -> Iterator[tuple[Loop, Any, WorkerRequests]]:
    loop, bus = Loop(), FakeWorkerBus()
    context = ProcessContext(Path("/nowhere"), "boot", 1)
    requests = WorkerRequests(loop, bus, context, Settings(), lambda: None)  # type: ignore[arg-type]
    requests.open(ready_session(), logs.get_logger())
    bus.on_subscription(True, topic("g"))
    yield loop, bus, requests
    loop.close()


def test_an_error_in_a_request_fails_that_request(worker: tuple[Loop, Any, WorkerRequests]) -> None:
    loop, bus, requests = worker
    with structlog.testing.capture_logs() as lines:
        requests.run(Run("g", 1, 1, "m", "chat/completions", "req-1"), b"{}")
        loop.run_once(0.0)
    failure = failure_of(bus.events[-1])
    assert failure.code == Code.INTERNAL
    assert "a bug" not in failure.message
    (end,) = [message for message in bus.sent if isinstance(message, AttemptEnded)]
    assert end == AttemptEnded("g", 1, 1, code=Code.INTERNAL, serial=1, model="m")
    assert loop.errors == 1
    (line,) = [line for line in lines if line["log_level"] == "error"]
    assert line["request_id"] == "req-1"
    assert isinstance(line["exc_info"], RuntimeError)
    assert len(requests) == 0


def test_an_error_in_a_load_fails_that_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_recipe: str) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(registry, "backend_class", broken)
    loop, bus = Loop(), FakeWorkerBus()
    context = ProcessContext(tmp_path, "boot", 1)
    WorkerController(loop, bus, context, Settings(), "w1")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="a bug"):
        bus.on_message(CheckModel(ModelSpec("m", "m", "llamacpp", "cpu", "llm", "/x")), b"")
    (failed,) = bus.sent
    assert isinstance(failed, LoadFailed)
    assert failed.failure.code == Code.INTERNAL
    loop.close()


ONE, TWO, THREE = (RequestKey("g1", number, 1) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("tokens", "causes"),
    [
        ({}, []),
        ({ONE: 0}, [ONE]),
        ({ONE: 7}, [ONE]),
        ({ONE: 7, TWO: 0, THREE: 1}, [TWO]),
        ({ONE: 0, TWO: 0, THREE: 1}, [ONE, TWO]),
        ({ONE: 7, TWO: 1}, [ONE, TWO]),
    ],
)
def test_those_without_a_token_come_first(tokens: dict[RequestKey, int], causes: list[RequestKey]) -> None:
    assert possible_causes(tokens) == causes


def test_an_engine_that_is_dead_is_forgotten(worker: tuple[Loop, Any, WorkerRequests]) -> None:
    _, _, requests = worker
    session = ready_session()
    kept = weakref.ref(session.engine.read_output)
    requests.open(session, logs.get_logger())
    requests.fail_all(Failure(Code.BACKEND_DIED, "it is dead"))
    del session
    gc.collect()
    assert kept() is None
