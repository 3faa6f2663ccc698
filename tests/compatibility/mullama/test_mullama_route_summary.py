"""Every row of the route summary in Mullama's document, in its order, on a server that has nothing downloaded yet."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compatibility.field_paths import missing
from tests.support.server import LemonbusServer

LLAMA, NOMIC = "llama3.2:1b", "nomic-embed"
LISTED = ["alias", "path", "parameters", "context_size", "gpu_layers", "is_default", "active_requests"]
DETAILS = [*LISTED, "architecture", "vocab_size", "capabilities.vision", "capabilities.tools", "capabilities.json"]
COST = ["total_duration_ms", "prompt_tokens", "completion_tokens"]
STATISTICS = ["requests_total", "tokens_generated", "active_requests", "gpu_available", "memory_used_bytes"]
DEFAULT = ["name", "description", "size_hint", "tags", "from", "has_thinking", "has_vision", "has_tools"]
SYSTEM = ["version", "uptime_secs", "models_loaded", "http_endpoint", "ipc_endpoint", "default_model"]
MESSAGES = [{"role": "user", "content": "What is the meaning of life?"}]
CHAT = {"model": LLAMA, "messages": MESSAGES}
PROMPT = {"model": LLAMA, "prompt": "What is the capital of France?", "max_tokens": 256}
VECTORS = {"model": NOMIC, "input": ["Hello, world!", "How are you?"]}

ROWS: list[tuple[str, str, Any, list[str]]] = [
    ("POST", "/api/models/pull", {"name": LLAMA}, ["status", "model", "repo", "size_bytes"]),
    ("GET", "/api/models", None, [f"models[].{field}" for field in LISTED]),
    ("GET", f"/api/models/{LLAMA}", None, LISTED),
    ("POST", "/api/models/load", {"alias": LLAMA}, ["status", "alias", "parameters", "context_size", "gpu_layers"]),
    ("GET", f"/api/models/{LLAMA}", None, DETAILS),
    ("POST", "/api/generate", PROMPT, ["model", "response", "done", *COST, "tokens_per_second"]),
    ("POST", "/api/chat", CHAT, ["model", "message.role", "message.content", "done", *COST]),
    ("POST", "/api/embeddings", VECTORS, ["model", "embeddings[]", "dimensions", "total_tokens"]),
    ("POST", f"/api/models/{LLAMA}/unload", None, ["status", "alias"]),
    ("GET", "/api/system/status", None, [*SYSTEM, *(f"stats.{field}" for field in STATISTICS)]),
    ("GET", "/api/defaults", None, [f"[].{field}" for field in DEFAULT]),
    ("POST", "/api/defaults/llama3.2-1b/use", None, ["status", "alias", "parameters", "context_size", "gpu_layers"]),
    ("GET", "/health", None, ["status"]),
    ("GET", "/status", None, ["status", "version", "uptime_secs", "models_loaded", "active_requests"]),
    ("POST", "/v1/chat/completions", CHAT, ["id", "created", "model", "choices[].message.content"]),
    ("POST", "/v1/completions", PROMPT, ["id", "object", "created", "model", "choices[].text"]),
    ("POST", "/v1/embeddings", VECTORS, ["object", "data[].embedding", "usage.prompt_tokens", "usage.total_tokens"]),
    ("GET", "/v1/models", None, ["object", "data[].id", "data[].object", "data[].created", "data[].owned_by"]),
    ("POST", "/v1/messages", {**CHAT, "max_tokens": 16}, ["id", "type", "role", "content[].text", "stop_reason"]),
    ("POST", "/v1/responses", {"model": LLAMA, "input": "Hello"}, ["id", "object", "output[].content[].text", "usage"]),
    ("DELETE", f"/api/models/{LLAMA}", None, ["status", "alias"]),
]
"""Method, path, body, and fields of the answer. Responses is listed with the other APIs that the document points to."""


def test_every_row_is_answered(server: LemonbusServer, subtests: pytest.Subtests) -> None:
    assert not {LLAMA, NOMIC} & {model["alias"] for model in server.client.get("/api/models").json()["models"]}
    for method, path, body, fields in ROWS:
        with subtests.test(f"{method} {path}"):
            answer = server.client.start(method, path, body).finish()
            assert (answer.status, missing(answer.json(), fields)) == (200, []), answer
    with subtests.test("GET /metrics"):
        metrics = server.client.get("/metrics?mullama=true").body.decode()
        for family in ("info", "uptime_seconds", "models_loaded", "requests_total", "request_duration_seconds_bucket"):
            assert f"\nmullama_{family}" in metrics
