"""SIGKILL of an idle engine from outside, as the kernel sends it when memory runs out: it is only started again on request."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartServer
from tests.support import processes
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"
LOOP = "extra.tiny-loop"


@pytest.fixture(scope="module")
def server(start_module_server: StartServer) -> LemonbusServer:
    return start_module_server("tiny-chat", "tiny-loop", load=[CHAT, LOOP], max_loaded_models=2)


def test_its_model_stays_unloaded_until_it_is_asked_for(server: LemonbusServer) -> None:
    def events(start: str) -> list[dict[str, Any]]:
        return [line for line in server.lines if line["event"].startswith(start) and line.get("model") == CHAT]

    server.wait_loaded(CHAT, LOOP)
    server.assert_idle()
    processes.kill(server.engine_pid(CHAT))
    (known,) = wait_for(lambda: server.state()["troubled"], "health tells of it")
    assert (known["model_name"], known["retry_in_seconds"]) == (CHAT, 0)
    assert known["reason"].endswith("the model stays unloaded until it is asked for")
    wait_for(lambda: not server.model_state(CHAT), "its worker has ended")
    (line,) = wait_for(lambda: events("idle engine killed"), "the log tells of it")
    assert line["level"] == "error"
    assert server.model_state(LOOP) == "ready"
    assert server.client.chat(CHAT, max_tokens=1).status == 200
    assert not server.state()["troubled"]
    wait_for(lambda: len(events("engine started")) > 1, "the log has the engine of the request")
    assert len(events("engine started")) == 2, "at the start, and for the request"
