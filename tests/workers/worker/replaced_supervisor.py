"""Steps for tests of a worker whose supervisor is replaced."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from protocol.messages.peers import Ping, Pong
from tests.workers.direct_engine import spec_of
from tests.workers.worker_process import ENDLESS, WorkerProcess

LOOP = spec_of("tiny-loop", ctx_size=100_000, slots=4)
FAKE = structs.replace(spec_of("tiny-chat"), backend="system")


def assert_answers(worker: WorkerProcess) -> None:
    worker.send(Ping(1))
    assert worker.expect(Pong).number == 1


def stream(worker: WorkerProcess, number: int, body: dict[str, Any] = ENDLESS) -> None:
    worker.run(number, "chat/completions", body, stream=True)
    worker.begun(number)


def assert_continues(worker: WorkerProcess, number: int) -> None:
    received = worker.received[number]
    so_far = len(received.events)
    worker.until(lambda: len(received.events) > so_far, f"request {number} goes on")
