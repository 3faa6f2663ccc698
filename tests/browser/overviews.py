"""Overviews of servers that are hard to bring about: many models, every state at once."""

from __future__ import annotations

from typing import Any, Final

START: Final = 1_764_180_000.0
"""The server's clock, in Unix seconds."""
GB: Final = 1_000_000_000
LONG: Final = "user.A-model-with-a-name-so-long-that-no-column-of-a-telephone-has-room-for-it-Q4_K_M-GGUF"


def overview(models: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the overview of a server with these models, as an administrator sees it."""
    return {
        "time": START,
        "access": {"admin": True},
        "server": {"version": "1.0", "state": "ok", "started_at": START - 90_000, "pid": 7, "problems": []},
        "memory": {"host": {"name": "Memory", "total": 64 * GB, "free": 20 * GB}},
        "models": models,
        "requests": {},
        "ended": {},
        **fields,
    }


def ready(number: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a loaded model."""
    return {
        "state": "ready",
        "type": "llm",
        "recipe": "llamacpp",
        "device": "cpu",
        "slots": 4,
        "context": 8192,
        "memory": (number % 9 + 1) * GB,
        "last_use": START - number,
        "loaded_at": START - 600,
        "load_seconds": 2.5,
        **fields,
    }


def failed(message: str, retry_after_s: float = 30.0) -> dict[str, Any]:
    """Return a model that could not be loaded."""
    failure = {"code": "load_failed", "message": message, "failures": 3, "retry_at": START + retry_after_s}
    return {"state": "failed", "type": "llm", "recipe": "llamacpp", "failure": failure}


def request(number: int, model: str, **fields: Any) -> dict[str, Any]:
    """Return a request in flight."""
    return {
        "id": f"req-{number:016x}",
        "key": "ci",
        "dialect": "openai",
        "endpoint": "/v1/chat/completions",
        "model": model,
        "state": "running",
        "arrived_at": START - 4,
        "granted_at": START - 3,
        "tokens": number,
        "stream": True,
        **fields,
    }


def ended(number: int, model: str, **fields: Any) -> dict[str, Any]:
    """Return a request that has ended."""
    return {
        "id": f"req-{number:016x}",
        "key": "ci",
        "endpoint": "/v1/chat/completions",
        "model": model,
        "ended_at": START - number,
        "queue_s": 0.01,
        "first_token_s": 0.2,
        "total_s": 3.0,
        "prompt_tokens": 12,
        "output_tokens": 200,
        "code": "",
        **fields,
    }


def sample(at: float, number: int) -> dict[str, Any]:
    """Return what the server was like at a time."""
    return {
        "at": at,
        "running": number % 5,
        "waiting": number % 3,
        "queue_wait_p50": 0.01 * (number % 7),
        "queue_wait_p95": 0.02 * (number % 7),
        "first_token_p50": 0.1 + 0.01 * (number % 11),
        "first_token_p95": 0.2 + 0.01 * (number % 11),
        "tokens_per_second": 100.0 + number % 50,
        "memory_used": {"host": 44 * GB + number % 10 * GB},
    }


def hour(end: float = START) -> dict[str, Any]:
    """Return the samples of the last hour."""
    return {"step_s": 10, "samples": [sample(end - 10 * (359 - number), number) for number in range(360)]}
