"""What the stand-in for a server with OpenAI's API answers."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.fake_engines.llama_server import WORDS

MODEL: Final = "maker/served-model"
"""What it calls its model; any other name is a 404."""
VECTOR: Final = [0.25, -0.5, 1.0]
SOUND: Final = bytes(range(256)) * 500
PNG: Final = "iVBORw0KGgo="
SEGMENTS: Final = [{"start": 0.0, "end": 1.0, "text": " Hello"}, {"start": 1.0, "end": 2.0, "text": " world."}]
Body = dict[str, Any]
COUNTS: Final = {"prompt_tokens": 5, "completion_tokens": len(WORDS), "total_tokens": 5 + len(WORDS)}


def whole_answer(path: str, text: str, more: Body) -> Body:
    chat = "chat" in path
    spoken = {"message": {"role": "assistant", "content": text, "tool_calls": None}} if chat else {"text": text}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": None, **spoken}
    return {"id": "x", "model": MODEL, "system_fingerprint": None, "choices": [choice], **more}


def unknown_model(fields: Body) -> tuple[int, Body]:
    return 404, {"object": "error", "message": f"The model `{fields.get('model')}` does not exist"}


def other_answer(path: str, body: bytes) -> tuple[int, Body]:
    """Return status and body of an answer that is not text."""
    if path.startswith("/v1/audio/t"):
        text = "".join(each["text"] for each in SEGMENTS)
        words = [{"word": "Hello", "start": 0.0, "end": 0.9}, {"word": "world", "start": 1.1, "end": 1.9}]
        return 200, {"text": text, "language": "english", "duration": 2.0, "segments": SEGMENTS, "words": words}
    if path == "/v1/images/edits":
        return 200, {"created": 1, "data": [{"b64_json": PNG}]}
    fields: Body = json.loads(body)
    if fields.get("model") != MODEL:
        return unknown_model(fields)
    answers: dict[str, Body] = {
        "/v1/embeddings": {
            "object": "list",
            "data": [{"index": 0, "embedding": VECTOR, "object": "embedding"}],
            "model": MODEL,
            "usage": {"prompt_tokens": 3, "total_tokens": 3},
        },
        "/v1/rerank": {
            "results": [
                {"index": at, "relevance_score": 0.5 - at / 10} for at in range(len(fields.get("documents", [])))
            ]
        },
        "/v1/images/generations": {"created": 1, "data": [{"b64_json": PNG}]},
    }
    return (200, answers[path]) if path in answers else (404, {"detail": "Not Found"})
