"""Which model answers, and what happens to a loaded model when a request asks for impossible options."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from tests.support.clients.http_client import RawHttpClient
from tests.support.models.tiny_models import TALE_TEXT
from tests.support.server import LemonbusServer

CHAT, LOOP, EMBED = "extra.tiny-chat", "extra.tiny-loop", "extra.tiny-embed"
TALE = "extra.tiny-tale"
"""No other test uses it at that server."""
ASK = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}


@pytest.fixture
def server(unloaded_server: LemonbusServer) -> LemonbusServer:
    return unloaded_server


def test_without_a_name_the_model_used_last_answers_loaded_or_not(keyed_server: LemonbusServer) -> None:
    server = keyed_server
    key = ApiKey(name="two-models", sha256=digest("two-models"), scopes=[Scope.INFERENCE], models=[TALE, EMBED])
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, [key])
    client = RawHttpClient(server.port, {"Authorization": f"Bearer {key.name}"})
    unknown_model = client.post("/v1/chat/completions", ASK)
    assert (unknown_model.status, unknown_model.error["param"]) == (400, "model")
    assert client.chat(TALE).text == TALE_TEXT
    assert client.post("/v1/embeddings", {"model": EMBED, "input": "a"}).status == 200
    assert client.post("/v1/chat/completions", ASK).json()["model"] == TALE
    assert server.client.post("/v1/unload", {}, **server.admin_headers).status == 200
    assert server.engine_now(TALE) is None
    again = client.post("/v1/chat/completions", ASK)
    assert (again.json()["model"], again.text) == (TALE, TALE_TEXT)
    assert client.post("/v1/embeddings", {"input": "a"}).json()["model"] == EMBED


def test_a_running_model_is_not_ended_for_impossible_options(server: LemonbusServer) -> None:
    assert server.client.chat(LOOP, max_tokens=3).status == 200
    engine = server.engine_pid(LOOP)
    wrong: list[tuple[str, object]] = [("llamacpp_args", "--nonsense"), ("llamacpp_args", "--port 1"), ("ctx_size", -2)]
    for option, value in wrong:
        refused = server.client.post("/v1/load", {"model": LOOP, "save_options": True, option: value})
        assert (refused.status, refused.error["param"]) == (400, option), value
    assert server.engine_pid(LOOP) == engine
    assert not (server.home / "state" / "recipe_options.json").exists(), "what cannot be is not saved"


def test_a_pin_stays_until_it_is_taken_away(server: LemonbusServer) -> None:
    def pinned() -> bool:
        (model,) = server.health()["lemonbus"]["models"]
        return bool(model["pinned"])

    assert server.client.post("/v1/load", {"model": CHAT, "pinned": True}).status == 200
    assert pinned()
    assert server.client.post("/v1/load", {"model": CHAT}).status == 200
    assert server.client.post("/v1/load", {"model": CHAT, "ctx_size": 2048}).status == 200
    assert pinned(), "a load that says nothing of it changes nothing"
    assert server.client.post("/v1/load", {"model": CHAT, "pinned": False}).status == 200
    assert not pinned()


def test_a_recipe_that_cannot_be_run_here_is_named(server: LemonbusServer) -> None:
    file = server.home / "state" / "user_models.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"Odd": {"checkpoint": "some/model", "recipe": "from-the-future"}}')
    answer = server.client.chat("user.Odd")
    assert (answer.status, answer.error["code"]) == (501, "unsupported_operation")
    assert "from-the-future" in answer.error["message"]
