"""Conversations that go on after their model was evicted, or the server was restarted: real engines, no prompt is read twice."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.models import prompt_caches
from tests.conftest import StartServer
from tests.support.models.tiny_models import link_models, prompt_of
from tests.support.server import LemonbusServer

CHAT, TALE = "extra.tiny-chat", "extra.tiny-tale"
TOKENS = 500
Conversation = list[dict[str, Any]]


def turn(server: LemonbusServer, turns: Conversation, text: str) -> dict[str, Any]:
    """Add a turn to a conversation; return the engine's timings."""
    turns.append({"role": "user", "content": text})
    answer = server.client.post(
        "/v1/chat/completions", {"model": CHAT, "messages": turns, "max_tokens": 4, "temperature": 0}
    )
    assert answer.status == 200, answer
    body = answer.json()
    turns.append(body["choices"][0]["message"])
    timings: dict[str, Any] = body["timings"]
    return timings


def is_read_from_cache(timings: dict[str, Any]) -> bool:
    return bool(timings["cache_n"] >= TOKENS and timings["prompt_n"] < 100)


def swap(server: LemonbusServer) -> None:
    """Make another model evict this one."""
    assert server.client.chat(TALE, max_tokens=1).status == 200
    assert server.model_state(CHAT) == ""


@pytest.fixture(scope="module")
def swapping(start_module_server: StartServer) -> LemonbusServer:
    """A server on which one of two models is loaded at a time."""
    return start_module_server(
        "tiny-chat", "tiny-tale", max_loaded_models=1, keep_prompt_cache=True, slots=2, gateway_workers=1
    )


def test_later_turns_after_swaps_read_only_what_is_new(swapping: LemonbusServer) -> None:
    first: Conversation = []
    second: Conversation = []
    assert turn(swapping, first, prompt_of(TOKENS))["cache_n"] < 50
    assert turn(swapping, second, prompt_of(TOKENS))["cache_n"] < 50
    swap(swapping)
    assert is_read_from_cache(turn(swapping, second, "And?"))
    assert is_read_from_cache(turn(swapping, first, "And?")), "each slot was kept"
    (shown,) = swapping.state()["models"]
    assert shown["model_name"] == CHAT
    assert shown["restored_tokens"] >= 2 * TOKENS
    swap(swapping)
    first.append({"role": "user", "content": "And then?"})
    stream = swapping.client.start_chat(CHAT, messages=first, stream=True, max_tokens=4).finish()
    timings = next(chunk["timings"] for chunk in stream.chunks if "timings" in chunk)
    assert is_read_from_cache(timings), "also the turn after that, and a stream says so"


def test_an_unload_keeps_it_too_but_not_for_other_options(swapping: LemonbusServer) -> None:
    turns: Conversation = []
    turn(swapping, turns, prompt_of(TOKENS))
    assert swapping.client.post("/v1/unload", {"model_name": CHAT}).status == 200
    assert swapping.client.post("/v1/load", {"model_name": CHAT, "llamacpp_args": "--no-kv-unified"}).status == 200
    assert turn(swapping, list(turns), "And?")["cache_n"] < 50
    assert swapping.client.post("/v1/unload", {"model_name": CHAT}).status == 200
    assert is_read_from_cache(turn(swapping, turns, "And?"))


def test_kept_caches_are_private_to_the_user_of_the_server(swapping: LemonbusServer) -> None:
    turn(swapping, [], prompt_of(TOKENS))
    assert swapping.client.post("/v1/unload", {"model_name": CHAT}).status == 200
    root = prompt_caches.root(str(swapping.home / "cache"))
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    entry = prompt_caches.entries_of(str(swapping.home / "cache"), CHAT)[0]
    turn(swapping, [], "Hi.")
    for slot in range(2):
        answer = swapping.client.post(
            f"/v1/slots/{slot}?action=restore&model={CHAT}", {"filename": f"../../prompt_caches/{entry.name}/slot-0"}
        )
        assert answer.status == 400


@pytest.fixture
def start_again(tmp_path: Path, start_server: StartServer) -> Callable[..., LemonbusServer]:
    """Starts servers one after the other with the same models and the same ``cache_dir``."""
    link_models(tmp_path / "models", "tiny-chat")

    def start(**settings: Any) -> LemonbusServer:
        folders = {"extra_models_dir": str(tmp_path / "models"), "cache_dir": str(tmp_path / "cache")}
        return start_server(**folders, **settings)

    return start


def test_a_server_that_starts_again_goes_on(tmp_path: Path, start_again: Callable[..., LemonbusServer]) -> None:
    server, cache = start_again(), str(tmp_path / "cache")
    turns: Conversation = []
    turn(server, turns, prompt_of(TOKENS))
    assert server.client.post("/v1/unload", {"model_name": CHAT}).status == 200
    assert turn(server, turns, "And?")["cache_n"] < 50
    assert not prompt_caches.root(cache).exists(), "a load without it keeps nothing"
    assert server.client.post("/v1/load", {"model_name": CHAT, "keep_prompt_cache": True}).status == 200
    turn(server, turns, "And?")
    server.stop()
    server = start_again(keep_prompt_cache=True)
    assert is_read_from_cache(turn(server, turns, "And?"))
