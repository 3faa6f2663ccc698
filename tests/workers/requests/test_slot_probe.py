"""An engine whose loop never leaves a grammar is ended, although it uses its processor and its client waits."""

from __future__ import annotations

import pytest

from tests.conftest import StartServer
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for
from workers.backends.llamacpp.requests.native_request import native_request
from workers.backends.requests.generation_request import generation_request

HOPELESS = 'root ::= "a" root "b" | "a" root "c"'
"""Each letter doubles the possible continuations."""


@pytest.fixture
def server(start_server: StartServer) -> LemonbusServer:
    return start_server("tiny-chat", silence=1.0)


def deaths(server: LemonbusServer) -> int:
    return sum(line["event"] == "engine died" for line in server.lines)


def test_a_grammar_that_never_ends(server: LemonbusServer) -> None:
    assert server.client.chat("extra.tiny-chat", max_tokens=1).status == 200
    engine = server.engine_pid("extra.tiny-chat")
    refused = server.client.chat("extra.tiny-chat", max_tokens=60, grammar=HOPELESS)
    assert (refused.status, refused.error["code"]) == (500, "backend_hung")
    assert "it was working on this request, which is not tried again" in refused.error["message"]
    assert refused.headers["x-should-retry"] == "false"
    wait_for(lambda: deaths(server), "its death is in the log")
    again = server.client.chat("extra.tiny-chat", max_tokens=5, grammar=HOPELESS)
    assert (again.status, again.error["code"]) == (400, "invalid_request")
    assert server.client.chat("extra.tiny-chat", max_tokens=1).status == 200
    assert server.engine_pid("extra.tiny-chat") != engine
    assert deaths(server) == 1


@pytest.mark.parametrize("field", [b'"grammar":"a"', b'"json_schema":{}', b'"tools":[{}]', b'"response_format":{}'])
def test_requests_that_are_watched(field: bytes) -> None:
    for body, watched in ((b'{"prompt":"a",%b}' % field, True), (b'{"prompt":"a","grammar":null}', False)):
        assert generation_request("chat/completions", body, True, {}, {}).grammar == watched
        assert generation_request("chat/completions", body, False, {}, {}).grammar == watched
        assert native_request("completion", body, False, {}, {}).grammar == watched
