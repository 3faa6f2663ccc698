"""SIGKILL of the engine in a stream of llama.cpp's own form: an error event, and never an event that says ``"stop":true``."""

from __future__ import annotations

import pytest

from tests.faults.conftest import ENDLESS, LOOP
from tests.support import processes
from tests.support.server import LemonbusServer


@pytest.mark.parametrize("fields", [{}, {"n_cmpl": 2}, {"response_fields": ["content"]}], ids=str)
def test_the_client_gets_llamacpps_error_event(loop_server: LemonbusServer, fields: dict[str, object]) -> None:
    body = {"model": LOOP, "prompt": "hi", "n_predict": ENDLESS, "stream": True, **fields}
    stream = loop_server.client.start("POST", "/completion", body, {"X-Request-ID": "broken-1"})
    stream.until(lambda it: len(it.events) > 5)
    processes.kill(loop_server.engine_pid(LOOP))
    stream.finish()
    *events, last = [event.json() for event in stream.messages]
    assert len(events) > 5
    assert not any(event["stop"] for event in events)
    error = last["error"]
    assert (error["code"], error["type"], error["reason"]) == (500, "server_error", "backend_died")
    assert (error["model"], error["request_id"], error["tokens_sent"]) == (LOOP, "broken-1", len(events))
