"""An engine that uses more memory than allowed: the request is tried once more, then fails with a clear code."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import StartServer
from tests.fake_engines.llama_server import program

CHAT = "extra.tiny-chat"


def test_the_client_is_told_and_the_server_goes_on(start_server: StartServer, tmp_path: Path) -> None:
    engine = program(tmp_path, "allocates_memory")
    limit = 192 * 1024 * 1024
    server = start_server("tiny-chat", llamacpp_backend="system", llama_server=engine, memory_limit=limit, load=[CHAT])
    server.wait_loaded(CHAT)
    answer = server.client.chat(CHAT)
    assert (answer.status, answer.error["code"]) == (500, "out_of_memory")
    assert "memory_limit" in answer.error["message"]
    server.wait_loaded(CHAT)
    server.assert_idle()
