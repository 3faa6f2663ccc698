"""SIGSEGV of the engine because of a request: that request fails, is not tried again, and is refused for a while; other requests succeed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey, Scope, digest, write_keys
from supervisor.scheduler.crash_record import MAX_CRASHES
from tests.conftest import StartServer
from tests.fake_engines.llama_server import ANSWER, program
from tests.faults.conftest import one_death_noted
from tests.support.clients.http_client import RawHttpClient, chat_body, run_concurrently
from tests.support.clients.http_exchange import HttpExchange
from tests.support.server import LemonbusServer
from tests.support.waiting import wait_for

CHAT = "extra.tiny-chat"
PROMPT = {"prompt": "POISON"}
MESSAGES = {"messages": [{"role": "user", "content": "POISON"}]}
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": MESSAGES,
    "/v1/completions": PROMPT,
    "/v1/responses": {"input": "POISON"},
    "/v1/messages": {**MESSAGES, "max_tokens": 20},
    "/v1/messages/count_tokens": MESSAGES,
    "/api/chat": MESSAGES,
    "/api/generate": PROMPT,
    "/completion": PROMPT,
    "/tokenize": {"content": "POISON"},
}


def deaths(server: LemonbusServer) -> int:
    return sum(line["event"] == "engine died" for line in server.lines)


@pytest.fixture
def server(crashing_server: LemonbusServer) -> LemonbusServer:
    """:func:`crashing_server` with tiny-chat loaded, which makes it forget which requests killed the engine."""
    assert crashing_server.client.post("/v1/load", {"model_name": CHAT}).status == 200
    return crashing_server


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", REQUESTS)
def test_its_client_is_told_in_every_dialect_and_it_is_not_tried_again(
    server: LemonbusServer, path: str, stream: bool
) -> None:
    before = deaths(server)
    body = {"model": CHAT, **REQUESTS[path], "stream": stream}
    with one_death_noted(server):
        answer = server.client.post(path, body)
    assert answer.status == 500, answer
    assert "was killed by SIGSEGV; it was working on this request, which is not tried again" in answer.body.decode()
    assert answer.headers["x-should-retry"] == "false"
    assert deaths(server) == before + 1

    again = server.client.post(path, body | {"stream": not stream})
    assert again.status == 400, again
    assert "died of this request" in again.body.decode()
    assert again.headers["x-should-retry"] == "false"
    assert deaths(server) == before + 1
    assert server.client.chat(CHAT).text == ANSWER, "another request is served"


def test_each_of_several_requests_is_tried_again_alone(server: LemonbusServer) -> None:
    def ask(index: int) -> HttpExchange:
        prompt = "POISON" if index == 3 else f"neighbour {index}"
        return server.client.chat(CHAT, messages=[{"role": "user", "content": prompt}])

    with one_death_noted(server):
        answers = run_concurrently(12, ask)
    poison = answers.pop(3)
    assert (poison.status, poison.error["code"]) == (500, "backend_died")
    assert "it was working on this request" in poison.error["message"]
    for answer in answers:
        assert answer.status == 200, answer
        assert answer.text == ANSWER


def test_a_request_with_tokens_is_not_suspected_if_another_one_has_none(server: LemonbusServer) -> None:
    waits = server.client.start_chat(CHAT, messages=[{"role": "user", "content": "WAITS"}], stream=True)
    waits.until(lambda it: len(it.events) > 1)
    with one_death_noted(server):
        poison = server.client.chat(CHAT, messages=MESSAGES["messages"])
    assert "it was working on this request" in poison.error["message"]
    assert waits.finish().error["code"] == "backend_died"
    assert "it was working on this request" not in waits.error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_single_request_is_suspected_even_after_its_first_token(server: LemonbusServer, stream: bool) -> None:
    before = deaths(server)
    with one_death_noted(server):
        answer = server.client.chat(CHAT, messages=[{"role": "user", "content": "LATER"}], stream=stream)
    assert answer.error["code"] == "backend_died"
    assert "it was working on this request, which is not tried again" in answer.error["message"]
    assert deaths(server) == before + 1


@pytest.fixture(scope="module")
def keyed(start_module_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> LemonbusServer:
    """A server with two keys whose engines die like those of :func:`crashing_server`; a third death would open the breaker."""
    engine = program(tmp_path_factory.mktemp("engine"), "crashes_on_prompt")
    server = start_module_server(
        "tiny-chat",
        llamacpp_backend="system",
        llama_server=engine,
        breaker_deaths=2,
        breaker_window=600,
        api_key="operator",
    )
    keys = [ApiKey(name=name, sha256=digest(name), scopes=[Scope.INFERENCE]) for name in ("attacker", "other")]
    write_keys(Path(server.settings.state_dir) / KEYS_FILE, keys)
    return server


def test_a_client_with_several_such_requests_loses_only_its_own_access(keyed: LemonbusServer) -> None:
    def ask(key: str, content: str) -> HttpExchange:
        client = RawHttpClient(keyed.port, {"Authorization": f"Bearer {key}"})
        return client.post("/v1/chat/completions", chat_body(CHAT, messages=[{"role": "user", "content": content}]))

    assert wait_for(lambda: ask("attacker", "hi").status == 200, "the keys are known")
    for turn in range(MAX_CRASHES):
        assert ask("attacker", f"POISON {turn}").status == 500
        assert ask("other", f"hi {turn}").text == ANSWER, "it waits for the engine at most"
    before = deaths(keyed)
    for turn in range(10):
        refused = ask("attacker", f"POISON again {turn}")
        assert (refused.status, refused.error["code"]) == (429, "rate_limit_exceeded")
        assert "the API key attacker" in refused.error["message"]
        assert int(refused.headers["retry-after"]) > 60
    assert ask("other", "hi").text == ANSWER
    assert deaths(keyed) == before == MAX_CRASHES
    metrics = RawHttpClient(keyed.port, {"Authorization": "Bearer operator"}).get("/metrics").body.decode()
    assert f'lemonbus_engine_crashes_total{{model="{CHAT}"}} {MAX_CRASHES}.0' in metrics
    lines = [line for line in keyed.lines if line["event"] == "engine died of a request"]
    assert [line["client"] for line in lines] == ["attacker"] * MAX_CRASHES
