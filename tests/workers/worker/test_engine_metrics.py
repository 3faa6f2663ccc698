"""An engine's own metrics are read for a supervisor that only waits a moment, and a hanging engine gets one request."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.messages.metrics import MetricsCollected
from protocol.runtime.loop import Loop
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.exchange import BufferedResponse
from workers.worker.engine_metrics import ENGINE_DEADLINE_S, MAX_METRICS_BYTES, EngineMetricsReader


class ReaderFixture:
    """A reader with a clock of its own, and an engine that answers when it is told to."""

    def __init__(self, request: EngineRequest | None) -> None:
        self.time = 0.0
        self.loop = Loop(lambda: self.time)
        self.requests: list[BufferedResponse] = []
        self.answers: list[tuple[int, bool, bytes]] = []
        backend: Any = SimpleNamespace(metrics=lambda: request)
        pool: Any = SimpleNamespace(send=lambda _request, handler: self.requests.append(handler))
        self.reader = EngineMetricsReader(self.loop, backend, pool, self._answered)

    def _answered(self, message: MetricsCollected, payload: bytes) -> None:
        self.answers.append((message.number, message.late, payload))

    def engine_answers(self, body: bytes, status: int = 200) -> None:
        handler = self.requests[-1]
        handler.began(status)
        handler.data(body)
        handler.ended()

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.loop.run_once(0.0)


@pytest.fixture
def fixture() -> Iterator[ReaderFixture]:
    fixture = ReaderFixture(EngineRequest("GET", "/metrics"))
    yield fixture
    fixture.loop.close()


def test_an_engine_without_metrics_is_not_asked() -> None:
    fixture = ReaderFixture(None)
    fixture.reader.read(1)
    assert fixture.requests == []
    assert fixture.answers == [(1, False, b"")]
    fixture.loop.close()


def test_the_engines_text_is_passed_on(fixture: ReaderFixture) -> None:
    fixture.reader.read(1)
    fixture.reader.read(2)
    fixture.engine_answers(b"x 1\n")
    assert fixture.answers == [(1, False, b"x 1\n"), (2, False, b"x 1\n")]
    fixture.reader.read(3)
    fixture.engine_answers(b"x 2\n")
    fixture.wait(1.0)
    assert fixture.answers[2:] == [(3, False, b"x 2\n")]
    assert len(fixture.requests) == 2


def test_an_engine_that_hangs_is_asked_once(fixture: ReaderFixture) -> None:
    for number in range(5):
        fixture.reader.read(number)
        fixture.wait(ENGINE_DEADLINE_S - 0.01)
        assert len(fixture.answers) == number
        fixture.wait(0.02)
        assert fixture.answers[-1] == (number, True, b"")
    assert len(fixture.requests) == 1
    fixture.engine_answers(b"x 1\n")
    assert len(fixture.answers) == 5
    fixture.reader.read(9)
    fixture.engine_answers(b"x 2\n")
    assert fixture.answers[-1] == (9, False, b"x 2\n")


@pytest.mark.parametrize(("status", "body"), [(501, b"no"), (200, b"x" * (MAX_METRICS_BYTES + 1))])
def test_an_error_or_too_much_text_is_not_an_answer(fixture: ReaderFixture, status: int, body: bytes) -> None:
    fixture.reader.read(1)
    fixture.engine_answers(body, status)
    assert fixture.answers == [(1, True, b"")]


def test_a_broken_connection_is_not_an_answer(fixture: ReaderFixture) -> None:
    fixture.reader.read(1)
    fixture.requests[0].broke("reset")
    assert fixture.answers == [(1, True, b"")]
