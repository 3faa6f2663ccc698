"""An idle engine is stopped (SIGSTOP) and then evicted: its prompt caches cannot be saved, and the other model waits only as long as allowed."""

from __future__ import annotations

import time

from protocol.models import prompt_caches
from tests.faults.conftest import SAVE_TIMEOUT_S
from tests.support.models.tiny_models import TALE_TEXT
from tests.support.processes import alive, stop
from tests.support.server import LemonbusServer

CHAT, TALE = "extra.tiny-chat", "extra.tiny-tale"


def test_another_model_is_loaded_in_its_place(single_model_server: LemonbusServer) -> None:
    server, before = single_model_server, len(single_model_server.lines)
    assert server.client.post("/v1/load", {"model_name": CHAT, "keep_prompt_cache": True}).status == 200
    question = [{"role": "user", "content": "x" * 200}]
    assert server.client.chat(CHAT, messages=question, max_tokens=2).status == 200
    engine = server.engine_pid(CHAT)
    stop(engine)
    begun = time.monotonic()
    answer = server.client.chat(TALE)
    took = time.monotonic() - begun
    assert answer.json()["choices"][0]["message"]["content"] == TALE_TEXT
    # The save, SIGKILL 2 s after SIGTERM, and the load of the other model.
    assert SAVE_TIMEOUT_S < took < 20.0
    assert not alive(engine)
    assert any(line["event"] == "prompt caches not saved" for line in server.lines[before:])
    assert prompt_caches.entries_of(str(server.home / "cache"), CHAT) == []
    assert server.client.chat(CHAT, messages=question, max_tokens=2).status == 200
    assert server.client.post("/v1/unload", {"model_name": CHAT}).status == 200
