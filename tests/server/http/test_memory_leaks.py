"""Large requests leave nothing behind in the processes that they pass."""

from __future__ import annotations

import json

import psutil  # type: ignore[import-untyped]

from tests.conftest import StartServer
from tests.support.models.tiny_models import CHAT_TEXT

CHAT = "extra.tiny-chat"
MIB = 1024 * 1024
LARGE, MANY = 2 * MIB, 16


def test_a_large_request_is_forgotten_when_it_is_answered(start_server: StartServer) -> None:
    server = start_server("tiny-chat", load=[CHAT], log_level="info")
    server.wait_loaded(CHAT)
    body = {"model": CHAT, "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    large = json.dumps({**body, "metadata": {"x": "y" * LARGE}}).encode()
    processes = [
        psutil.Process(pid) for pid in (*server.gateway_pids(), server.worker_pid(CHAT), server.supervisor_pid)
    ]

    def ask(stream: bool) -> None:
        data = large if not stream else large[:-1] + b',"stream":true}'
        answer = server.client.post("/v1/chat/completions", data)
        assert answer.text == CHAT_TEXT

    for turn in range(4):
        ask(stream=bool(turn % 2))
    before = [process.memory_info().rss for process in processes]
    for turn in range(MANY):
        ask(stream=bool(turn % 2))
    grown = [(process.memory_info().rss - rss) / MIB for process, rss in zip(processes, before, strict=True)]
    # Kept, they would be 32 MiB in a gateway and twice that in the worker.
    assert max(grown) < 16, grown
