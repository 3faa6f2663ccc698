"""GET and POST params: the documents' example, its effect on requests, and that it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import processes
from tests.support.server import LemonbusServer

LOOP, CHAT = "extra.tiny-loop", "extra.tiny-chat"
NAMES = ["temperature", "top_p", "top_k", "min_length", "max_length", "do_sample"]
EXAMPLE = {"temperature": 0.8, "top_p": 0.95, "max_length": 1000}
DEFAULTS = {"temperature": 0.7, "top_p": 0.95, "top_k": 50, "min_length": 0, "max_length": 2048, "do_sample": True}


@pytest.fixture
def server(changing_server: LemonbusServer) -> Iterator[LemonbusServer]:
    """The server, where nothing is set before and after the test."""
    yield changing_server
    assert changing_server.client.post("/v1/params", dict.fromkeys(NAMES)).json()["set"] == []


def tokens(server: LemonbusServer, model: str = LOOP, **fields: Any) -> int:
    """Return how long an answer gets."""
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **fields}
    answer = server.client.post("/v1/chat/completions", body)
    assert answer.status == 200, answer
    return int(answer.json()["usage"]["completion_tokens"])


@pytest.mark.parametrize("prefix", ["/api/v1", "/api/v0", "/v1", "/v0"])
def test_the_documents_example(server: LemonbusServer, prefix: str) -> None:
    assert server.client.get(f"{prefix}/params").json()["params"] == DEFAULTS
    answer = server.client.post(f"{prefix}/params", EXAMPLE)
    body = answer.json()
    assert answer.status == 200
    assert (body["status"], body["message"]) == ("success", "Generation parameters set successfully")
    assert body["params"] == {**DEFAULTS, **EXAMPLE}, "what was not set is the documented default"
    assert list(body["params"]) == NAMES
    assert body["set"] == list(EXAMPLE)
    assert server.client.get(f"{prefix}/params").json()["params"] == body["params"]


def test_they_persist_across_requests_until_changed(server: LemonbusServer) -> None:
    server.client.post("/v1/params", EXAMPLE)
    again = server.client.post("/v1/params", {"top_k": 40}).json()["params"]
    assert again == {**DEFAULTS, **EXAMPLE, "top_k": 40}
    assert server.client.post("/v1/params", {}).json()["params"] == again


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_length": -1}, "min_length"),
        ({"max_length": 0}, "max_length"),
        ({"do_sample": "yes"}, "do_sample"),
        ({"min_length": 5000}, "min_length"),
        ({"top_k": 9, "max_length": "long"}, "max_length"),
    ],
)
def test_a_wrong_value_is_named_and_nothing_is_changed(
    server: LemonbusServer, body: dict[str, Any], param: str
) -> None:
    server.client.post("/v1/params", {"top_k": 7})
    answer = server.client.post("/api/v1/params", body)
    assert (answer.status, answer.json()["status"]) == (400, "error")
    assert (answer.error["type"], answer.error["param"]) == ("invalid_request", param)
    assert param in answer.json()["message"]
    assert server.client.get("/v1/params").json()["params"] == {**DEFAULTS, "top_k": 7}


def test_defaults_apply_only_to_requests_without_their_own_values(server: LemonbusServer) -> None:
    server.client.post("/v1/params", {"max_length": 7})
    assert tokens(server) == 7
    assert tokens(server, max_tokens=None) == 7
    assert tokens(server, max_tokens=11) == 11
    assert tokens(server, max_completion_tokens=12) == 12
    text = server.client.post("/v1/completions", {"model": LOOP, "prompt": "hi", "stream": True})
    assert sum('"text"' in event.data for event in text.events) >= 1
    assert text.events[-1].data == "[DONE]"
    assert tokens(server, CHAT) == 7, "even with a model that was loaded since"
    server.client.post("/v1/params", {"max_length": None})
    assert tokens(server, max_tokens=40) == 40


def test_greedy_is_greedy(server: LemonbusServer) -> None:
    server.client.post("/v1/params", {"do_sample": False, "max_length": 16})
    asked = {"model": LOOP, "prompt": "Once", "logprobs": 0}
    answers = [server.client.post("/v1/completions", asked).json()["choices"][0]["text"] for _ in range(3)]
    assert len(set(answers)) == 1


def test_they_hold_after_the_engine_died(server: LemonbusServer) -> None:
    server.client.post("/v1/params", {"max_length": 5})
    assert tokens(server) == 5
    processes.kill(server.engine_pid(LOOP))
    assert tokens(server) == 5
