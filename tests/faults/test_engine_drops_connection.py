"""A connection to a living engine that breaks before the first token: the request is tried again, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.fake_engines.llama_server import ANSWER, program

CHAT = "extra.tiny-chat"


@pytest.mark.parametrize("stream", [True, False])
def test_the_client_gets_a_whole_answer(start_server: StartServer, tmp_path: Path, stream: bool) -> None:
    engine = program(tmp_path, "drops_connection")
    server = start_server("tiny-chat", llamacpp_backend="system", llama_server=engine, load=[CHAT])
    server.wait_loaded(CHAT)
    pid = server.engine_pid(CHAT)
    answer = server.client.start_chat(CHAT, stream=stream).finish(10)
    assert answer.status == 200
    assert answer.text == ANSWER
    assert server.engine_pid(CHAT) == pid, "the engine lives on"
    server.assert_idle()
