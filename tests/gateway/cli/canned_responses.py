"""Responses of a fake server: models, chunks of a chat, progress of a download."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gateway.api.lemonade.health import server_health
from gateway.api.openai.models import ModelsQuery, model_list
from protocol.messages.health import HealthReport
from protocol.messages.models import ModelEntry
from tests.gateway.fake_server import Reply

ALL = ("GET", "/v1/models?show_all=true")
CHAT = ("POST", "/v1/chat/completions")
PULL = ("POST", "/v1/pull")
DONE = "data: [DONE]\n\n"
_NO_MODELS: Any = {"models": [], "max_models": {}}
COMPLETE = 'event: complete\ndata: {"file_index":1,"total_files":1,"percent":100}\n\n'


def model(name: str, *, downloaded: bool = False, size: float = 2.5, **more: Any) -> ModelEntry:
    return ModelEntry(name, 0, f"o/{name}:Q4_0", "llamacpp", "llm", downloaded, size=size, **more)


def catalogue(*models: ModelEntry) -> Reply:
    """Return the answer of the server's own code."""
    return Reply(msgspec.to_builtins(model_list(list(models), ModelsQuery(show_all=True))))


def health(**more: Any) -> Reply:
    """Return the state of a server without models."""
    report = HealthReport(
        **{"status": "ok", "version": "1", "boot": "b1", "pid": 1, "uptime": 1.0, **_NO_MODELS, **more}
    )
    return Reply(msgspec.to_builtins(server_health(report, 1, detail=True)))


def chunk(**delta: Any) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': None}]})}\n\n"


def end(reason: str = "stop") -> str:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    return f"data: {json.dumps(last)}\n\ndata: {json.dumps(usage)}\n\n"


def progress(percent: int) -> str:
    facts = {"file": "m.gguf", "file_index": 1, "total_files": 1, "bytes_downloaded": percent, "bytes_total": 100}
    return f"event: progress\ndata: {json.dumps({**facts, 'percent': percent})}\n\n"
