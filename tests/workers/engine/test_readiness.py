"""What is said of an engine that does not become ready: it does not listen, does not answer, or answers with another status."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from protocol.runtime.loop import Loop
from workers.backends.engine_request import EngineRequest
from workers.engine.connections.exchange import BufferedResponse
from workers.engine.readiness import ReadinessProbe


@pytest.mark.parametrize(
    ("listening", "status", "waits_for"),
    [
        (False, 200, "nothing listened on its port"),
        (True, 503, "/ready was answered with 503"),
        (True, 0, "/ready was not answered"),
    ],
)
def test_what_is_waited_for(*, listening: bool, status: int, waits_for: str) -> None:
    now = 0.0

    def send(_request: EngineRequest, handler: BufferedResponse) -> None:
        if status:
            handler.began(status)
            handler.ended()
        else:
            handler.broke("closed")

    backend: Any = SimpleNamespace(
        health=lambda: EngineRequest("GET", "/ready"), health_problem=lambda *_: "", is_healthy=lambda _status: False
    )
    pool: Any = SimpleNamespace(send=send)
    loop = Loop(lambda: now)
    probe = ReadinessProbe(loop, pool, backend, lambda: listening, pytest.fail, pytest.fail)
    assert probe.waits_for == "nothing listened on its port"
    now = 1.0
    loop.run_once(0.0)
    assert probe.waits_for == waits_for
    probe.cancel()
    loop.close()
