"""A connection to a living engine that breaks before the first token: the request is tried again, once."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import StartServer
from tests.fake_engines.llama_server import ANSWER, program

CHAT = "extra.tiny-chat"


def test_the_client_gets_a_whole_answer(start_server: StartServer, tmp_path: Path) -> None:
    engine = program(tmp_path, "drops_connection")
    server = start_server("tiny-chat", llamacpp_backend="system", llama_server=engine)
    for stream in (True, False):
        assert server.client.post("/v1/load", {"model_name": CHAT}).status == 200
        pid = server.engine_pid(CHAT)
        answer = server.client.start_chat(CHAT, stream=stream).finish()
        assert answer.status == 200
        assert answer.text == ANSWER
        assert server.engine_pid(CHAT) == pid, "the engine lives on"
        server.assert_idle()
        assert server.client.post("/v1/unload", {"model_name": CHAT}).status == 200
