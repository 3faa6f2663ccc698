"""The documented requests for ``generate``, ``chat`` and ``embeddings``: fields, defaults, streams, errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compatibility.field_paths import missing
from tests.compatibility.hub_server import HubServer
from tests.support.clients.http_exchange import HttpExchange
from tests.support.clients.ndjson import lines
from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer

LLAMA, NOMIC = "llama3.2:1b", "nomic-embed"
"""Aliases; the hub has a tiny model for each of them."""
COST = ["total_duration_ms", "prompt_tokens", "completion_tokens", "tokens_per_second"]
TEXT = ["model", "response", "done", *COST]
MESSAGE = ["model", "message.role", "message.content", "done", *COST]
ERROR = ["error.message", "error.type", "error.code"]
GENERATE, CHAT, EMBEDDINGS = "/api/generate", "/api/chat", "/api/embeddings"


@pytest.fixture(scope="module")
def server(module_hub_server: HubServer) -> LemonbusServer:
    """A server whose hub has the models of the document's aliases; the first request for each downloads it."""
    return module_hub_server.server


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        (GENERATE, {"model": LLAMA, "prompt": "What is the capital of France?", "max_tokens": 256}, TEXT),
        (
            GENERATE,
            {
                "model": LLAMA,
                "prompt": "Explain quantum computing in simple terms",
                "max_tokens": 512,
                "temperature": 0.7,
                "stream": False,
            },
            TEXT,
        ),
        (
            GENERATE,
            {
                "model": LLAMA,
                "prompt": "Hello!",
                "max_tokens": 16,
                "temperature": 0.7,
                "top_p": 0.9,
                "top_k": 40,
                "stop": ["x"],
                "stream": False,
                "system": "Be brief.",
            },
            TEXT,
        ),
        (CHAT, {"model": LLAMA, "messages": [{"role": "user", "content": "What is the meaning of life?"}]}, MESSAGE),
        (
            CHAT,
            {
                "model": LLAMA,
                "messages": [
                    {"role": "system", "content": "You are a helpful assistant."},
                    {"role": "user", "content": "What is 2+2?"},
                ],
                "max_tokens": 256,
                "stream": False,
            },
            MESSAGE,
        ),
    ],
)
def test_whole_answers(server: LemonbusServer, path: str, body: dict[str, Any], fields: list[str]) -> None:
    answer = server.client.post(path, body)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), answer
    written = answer.json()
    assert missing(written, fields) == []
    assert (written["model"], written["done"]) == (LLAMA, True)
    assert written.get("message", {"role": "assistant"})["role"] == "assistant"
    assert isinstance(written["total_duration_ms"], int)
    assert min(written["prompt_tokens"], written["completion_tokens"]) > 0


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        (GENERATE, {"model": LLAMA, "prompt": "Hello!", "stream": True}, ["model", "response", "done"]),
        (
            CHAT,
            {"model": LLAMA, "messages": [{"role": "user", "content": "Hi"}], "stream": True},
            ["model", "message.role", "message.content", "done"],
        ),
    ],
)
def test_streams(server: LemonbusServer, path: str, body: dict[str, Any], fields: list[str]) -> None:
    answer = server.client.post(path, body)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/x-ndjson"), answer
    written = lines(answer)
    assert answer.body.endswith(b"}\n")
    assert [missing(line, fields) for line in written] == [[]] * len(written)
    *pieces, last = written
    assert [line["done"] for line in pieces] == [False] * len(pieces)
    assert {line["model"] for line in written} == {LLAMA}
    assert missing(last, COST) == []
    assert last["done"] is True
    assert last.get("response", last.get("message", {}).get("content")) == ""
    text = "".join(line["response"] if path == GENERATE else line["message"]["content"] for line in pieces)
    assert text.strip() == CHAT_TEXT.strip()


@pytest.mark.parametrize(("texts", "count"), [("Hello, world!", 1), (["Hello, world!", "How are you?", "Goodbye!"], 3)])
def test_vectors(server: LemonbusServer, texts: Any, count: int) -> None:
    answer = server.client.post(EMBEDDINGS, {"model": NOMIC, "input": texts})
    assert answer.status == 200, answer
    written = answer.json()
    assert written["model"] == NOMIC
    assert [len(vector) for vector in written["embeddings"]] == [written["dimensions"]] * count
    assert written["total_tokens"] > 0


def test_without_a_model_the_default_answers(server: LemonbusServer) -> None:
    assert server.client.post("/v1/load", {"model_name": "extra.tiny-chat"}).status == 200
    answer = server.client.post(GENERATE, {"prompt": "Hello!", "max_tokens": 2})
    assert (answer.status, answer.json()["model"]) == (200, "extra.tiny-chat")


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "code"),
    [
        (GENERATE, {"model": LLAMA}, 400, "invalid_request", "invalid_request"),
        (GENERATE, {"model": "unknown-model", "prompt": "x"}, 404, "not_found", "model_not_found"),
        (CHAT, {"model": LLAMA}, 400, "invalid_request", "invalid_request"),
        (EMBEDDINGS, {"model": NOMIC}, 400, "invalid_request", "invalid_request"),
        (GENERATE, b'{"model": ', 400, "invalid_request", "invalid_json"),
        (GENERATE, b"x" * (33 << 20), 413, "invalid_request", "body_too_large"),
    ],
)
def test_errors(server: LemonbusServer, path: str, body: Any, status: int, kind: str, code: str) -> None:
    answer = server.client.post(path, body)
    assert answer.status == status, answer
    written = answer.json()
    assert list(written) == ["error"]
    assert missing(written, ERROR) == []
    assert (written["error"]["type"], written["error"]["code"]) == (kind, code)


def preflight(server: LemonbusServer) -> HttpExchange:
    head = (
        "OPTIONS /api/generate HTTP/1.1\r\nHost: localhost\r\nOrigin: http://x.test\r\n"
        "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,x-any\r\n\r\n"
    )
    return server.client.raw(head.encode()).finish()


def test_a_preflight(server: LemonbusServer) -> None:
    answer = preflight(server)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"]


def test_the_documents_defaults_lie_below_those_that_were_set(server: LemonbusServer) -> None:
    model = "extra.tiny-chat"

    def answer_tokens(**fields: Any) -> int:
        answer = server.client.post(GENERATE, {"model": model, "prompt": "Hello!", **fields})
        return int(answer.json()["completion_tokens"])

    assert server.client.post("/v1/params", {"max_length": 3}).status == 200
    try:
        assert answer_tokens() == 3
        assert answer_tokens(max_tokens=2) == 2
    finally:
        assert server.client.post("/v1/params", {"max_length": None}).status == 200
    assert answer_tokens() > 3
