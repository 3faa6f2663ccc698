"""What Open WebUI sends to a server with OpenAI's API or Ollama's, read in its source: its packages have gigabytes."""

from __future__ import annotations

import json
from typing import Any

from tests.support.models.tiny_models import CHAT_TEXT
from tests.support.server import LemonbusServer


def use_open_webui(server: LemonbusServer, key: str, chat: str, embedding: str) -> None:
    """Ask for models, chats, vectors and voices, as it does when a person opens it, chats, and adds a document."""
    _openai(server, key, chat, embedding)
    _ollama(server, key, chat, embedding)


def _openai(server: LemonbusServer, key: str, chat: str, embedding: str) -> None:
    """``open_webui/routers/openai.py``, ``audio.py`` and ``open_webui/retrieval/utils.py``."""
    to = {"Authorization": f"Bearer {key}"}
    listed = server.client.get("/v1/models", **to).json()
    assert {chat, embedding} <= {model["id"] for model in listed["data"]}
    request = {"stream": True, "model": chat, "messages": [{"role": "user", "content": "Hello"}]}
    streamed = server.client.post("/v1/chat/completions", {**request, "stream_options": {"include_usage": True}}, **to)
    *chunks, end = [event.data for event in streamed.messages]
    deltas = [choice["delta"] for chunk in map(json.loads, chunks) for choice in chunk["choices"]]
    assert (end, _text(deltas)) == ("[DONE]", CHAT_TEXT.strip())
    title = {**request, "stream": False, "max_completion_tokens": 1000}
    answered = server.client.post("/v1/chat/completions", title, **to).json()
    assert answered["choices"][0]["message"]["content"].strip() == CHAT_TEXT.strip()
    vectors = server.client.post("/v1/embeddings", {"input": ["a lemon", "a lime"], "model": embedding}, **to).json()
    assert [len(each["embedding"]) for each in vectors["data"]] == [32, 32]
    assert "voices" in server.client.get("/v1/audio/voices", **to).json()
    assert "models" in server.client.get("/v1/audio/models", **to).json()


def _ollama(server: LemonbusServer, key: str, chat: str, embedding: str) -> None:
    """``open_webui/routers/ollama.py``."""
    to = {"Authorization": f"Bearer {key}"}
    assert server.client.get("/api/version", **to).json()["version"]
    listed = server.client.get("/api/tags", **to).json()["models"]
    assert {f"{chat}:latest", f"{embedding}:latest"} <= {model["model"] for model in listed}
    request = {"model": f"{chat}:latest", "messages": [{"role": "user", "content": "Hello"}], "options": {"top_k": 40}}
    streamed = server.client.post("/api/chat", {**request, "stream": True}, **to)
    lines = [json.loads(line) for line in streamed.body.splitlines()]
    assert (lines[-1]["done"], _text([line["message"] for line in lines])) == (True, CHAT_TEXT.strip())
    assert f"{chat}:latest" in {model["model"] for model in server.client.get("/api/ps", **to).json()["models"]}
    vectors = server.client.post("/api/embed", {"input": ["a lemon"], "model": embedding, "truncate": True}, **to)
    assert len(vectors.json()["embeddings"][0]) == 32


def _text(messages: list[dict[str, Any]]) -> str:
    return "".join(message.get("content") or "" for message in messages).strip()
