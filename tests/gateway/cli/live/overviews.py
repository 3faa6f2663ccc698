"""A server with one model of each kind, at a time of its own."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from gateway.overview.view import Access, Overview
from protocol.messages.engines import LoadStage
from protocol.messages.model_overview import ModelDeath, ModelDeaths, ModelFailure, ModelLoad, ModelOverview, WaitingKey
from protocol.messages.overview import Download, EndedRequest, PlaceMemory, RequestOverview, ServerOverview

NOW: Final = 1_764_180_000.0
BUSY: Final = ModelOverview(
    "ready",
    "llm",
    "llamacpp",
    "cpu",
    slots=4,
    running=4,
    waiting=3,
    queue=[WaitingKey("ci", 2, 2.5), WaitingKey("", 1)],
    context=4096,
    memory=700_000_000,
    tokens_per_second=21.5,
    first_token_p50=0.31,
    last_use=NOW - 2,
)
LOADING: Final = ModelOverview("loading", load=ModelLoad(LoadStage.LOADING, NOW - 42, 1, 3, 10, "steps"), waiting=1)
BROKEN: Final = ModelOverview("absent", failure=ModelFailure("load_failed", "the file is not a model", 3, NOW + 8))
IDLE: Final = ModelOverview(
    "ready",
    "llm",
    "llamacpp",
    "gpu-0",
    slots=1,
    memory=2_000_000_000,
    last_use=NOW - 400,
    expires_at=NOW + 100,
    deaths=ModelDeaths(2, [ModelDeath(NOW - 4000, "backend_died", "llama-server was killed by SIGKILL")]),
)


def overview(**more: Any) -> Overview:
    """Return the overview of a busy server, with other values of some fields."""
    busy = Overview(
        time=NOW,
        access=Access(admin=True, key="", keys_needed=False),
        server=ServerOverview("0.1.0", "ok", NOW - 4000, 4, problems=["keys.json is broken"]),
        running=4,
        waiting=4,
        memory={
            "host": PlaceMemory(64 * 10**9, 5 * 10**9),
            "0000:03": PlaceMemory(24 * 10**9, 2 * 10**10, "Card", 93.0),
        },
        disks={},
        models={"busy": BUSY, "idle": IDLE, "broken": BROKEN, "loading": LOADING},
        downloads={"Far": Download("running", 10**8, 10**9, "d.gguf")},
        requests={
            "g:1": RequestOverview("req-1", "busy", "chat/completions", "running", NOW - 3, "ci", tokens=33),
            "g:2": RequestOverview("req-2", "busy", "chat/completions", "waiting", NOW - 9, position=1, wait_s=2.5),
        },
        ended={
            "1": EndedRequest("req-0", NOW - 20, 4.2, "chat/completions", "openai", "busy", prompt_tokens=7),
            "2": EndedRequest(
                "req-9", NOW - 10, 0.5, "chat/completions", "", "broken", "", 503, "load_failed", "no model"
            ),
        },
    )
    return msgspec.structs.replace(busy, **more)


def fields(**more: Any) -> Any:
    """Return the same as its JSON."""
    return json.loads(msgspec.json.encode(overview(**more)))


def event(name: str, data: Any) -> str:
    """Return an event of the stream."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
