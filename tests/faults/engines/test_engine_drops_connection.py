"""A connection to a living engine that breaks before the first token: the request is tried again, once."""

from __future__ import annotations

from tests.fake_engines.llama_server import ANSWER
from tests.support.server import LemonbusServer

LOOP = "extra.tiny-loop"


def test_the_client_gets_a_whole_answer(crashing_server: LemonbusServer) -> None:
    server = crashing_server
    for stream in (True, False):
        assert server.client.post("/v1/load", {"model_name": LOOP}).status == 200
        pid = server.engine_pid(LOOP)
        answer = server.client.start_chat(LOOP, stream=stream).finish()
        assert answer.status == 200
        assert answer.text == ANSWER
        assert server.engine_pid(LOOP) == pid, "the engine lives on"
        server.assert_idle()
        assert server.client.post("/v1/unload", {"model_name": LOOP}).status == 200
