"""A worker whose engine sends what a test says, and the answers of one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from protocol.config.settings import Settings
from protocol.ids import topic
from protocol.messages.work import AttemptEnded, Run
from protocol.models.recipes import IdleCheck
from protocol.runtime import logs
from protocol.runtime.loop import Loop
from protocol.runtime.process_context import ProcessContext
from tests.workers.backend_stand_in import backend_stand_in
from tests.workers.fake_worker_bus import FakeWorkerBus
from workers.backends.engine_request import EngineRequest
from workers.requests.attempt import Attempt
from workers.requests.worker_requests import WorkerRequests


class FakePool:
    """Keeps the attempts that were sent to the engine; each gets a connection, and the engine sends nothing by itself."""

    open = True

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.holds: list[bool] = []

    def send(self, _request: EngineRequest, attempt: Attempt) -> Any:
        self.attempts.append(attempt)
        return SimpleNamespace(
            connection=object(), headers={}, allow_batched_reads=lambda: None, hold=self.holds.append
        )


class Worker:
    """A worker whose engine cannot be interrupted: a cancelled request runs to its end."""

    def __init__(self) -> None:
        self.loop, self.bus, self.pool = Loop(), FakeWorkerBus(), FakePool()
        self.empty = 0
        context = ProcessContext(Path("/nowhere"), "boot", 1)
        self.requests = WorkerRequests(self.loop, self.bus, context, Settings(), self._emptied)  # type: ignore[arg-type]
        backend = backend_stand_in(
            servers=(),
            slots=4,
            silence=60.0,
            sampling={},
            settings=Settings(),
            request=lambda *_: EngineRequest("POST", "/v1/completions", streamed=True),
            idle_check=lambda _endpoint: IdleCheck.ANSWER,
        )
        session: Any = SimpleNamespace(
            backend=backend,
            spec=SimpleNamespace(name="m"),
            pool=self.pool,
            monitor=SimpleNamespace(wake=lambda: None, progress=lambda: None),
            engine=SimpleNamespace(read_output=lambda: None),
        )
        self._session = session
        self.engine_ready()
        self.bus.on_subscription(True, topic("g"))

    def engine_ready(self) -> None:
        self.requests.open(self._session, logs.get_logger())

    def _emptied(self) -> None:
        self.empty += 1

    def answers(self, request: EngineRequest) -> None:
        """What the backend translates each request into from now on."""
        self._session.backend.request = lambda *_: request

    def run(self, number: int, gateway: str = "g", endpoint: str = "completions") -> None:
        self.requests.run(Run(gateway, number, 1, "m", endpoint, f"req-{number}", stream=True), b"{}")

    def ends(self) -> list[tuple[int, str]]:
        self.loop.run_once(0.0)
        self.bus.flush()
        return [(message.number, message.code) for message in self.bus.sent if isinstance(message, AttemptEnded)]

    def event_kinds(self, number: int) -> list[int]:
        self.loop.run_once(0.0)
        return [event.kind for event in self.bus.events if event.number == number]


def begin_answer(attempt: Attempt) -> None:
    attempt.began(200)
    attempt.data(b'data: {"choices":[{"index":0,"text":"a"}]}\n\n')


def end_answer(attempt: Attempt) -> None:
    attempt.data(b'data: {"choices":[{"index":0,"text":"","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    attempt.ended()
