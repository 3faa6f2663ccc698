"""The requests of the load generator: one for each dialect, embeddings, and a small GET."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple


class RequestForm(NamedTuple):
    """One kind of request."""

    path: str
    body: Callable[[str, int, bool], dict[str, Any]] | None
    """(model, tokens, whether it streams) → the body; None for a GET."""
    token: bytes = b""
    """A text that a stream has once for each token, and nowhere else; longer than the end of a chunked body."""


def _messages() -> list[dict[str, str]]:
    return [{"role": "user", "content": "hi"}]


def _chat(model: str, tokens: int, stream: bool) -> dict[str, Any]:
    return {"model": model, "messages": _messages(), "max_tokens": tokens, "temperature": 0, "stream": stream}


def _responses(model: str, tokens: int, stream: bool) -> dict[str, Any]:
    return {"model": model, "input": "hi", "max_output_tokens": tokens, "temperature": 0, "stream": stream}


def _ollama_chat(model: str, tokens: int, stream: bool) -> dict[str, Any]:
    options = {"num_predict": tokens, "temperature": 0}
    return {"model": model, "messages": _messages(), "options": options, "stream": stream}


def _generate(model: str, tokens: int, stream: bool) -> dict[str, Any]:
    return {"model": model, "prompt": "hi", "max_tokens": tokens, "temperature": 0, "stream": stream}


def _completion(model: str, tokens: int, stream: bool) -> dict[str, Any]:
    return {"model": model, "prompt": "hi", "n_predict": tokens, "temperature": 0, "stream": stream}


def _embeddings(model: str, _tokens: int, _stream: bool) -> dict[str, Any]:
    return {"model": model, "input": "hi"}


def _sentence_embeddings(model: str, _tokens: int, _stream: bool) -> dict[str, Any]:
    return {"model": model, "input": SENTENCE}


SENTENCE: Final = "a b c d e f g h i j k l m n"
"""As long as a short sentence: 16 tokens, for tiny models as for others."""

FORMS: Final = {
    "chat/completions": RequestForm("/v1/chat/completions", _chat, b'"delta":{"content":"'),
    "responses": RequestForm("/v1/responses", _responses, b'"delta":"'),
    "messages": RequestForm("/v1/messages", _chat, b'"text_delta","text":"'),
    "ollama chat": RequestForm("/api/chat", _ollama_chat, b'"done":false'),
    "mullama generate": RequestForm("/api/generate", _generate, b'"done":false'),
    "llama.cpp completion": RequestForm("/completion", _completion, b'"stop":false'),
    "embeddings": RequestForm("/v1/embeddings", _embeddings),
    "embeddings of a sentence": RequestForm("/v1/embeddings", _sentence_embeddings),
    "stats": RequestForm("/v1/stats", None),
}
