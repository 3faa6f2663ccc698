"""Reports of a supervisor, for tests: models, a load, health."""

from __future__ import annotations

from typing import Any

from protocol.failures import Code, Failure
from protocol.messages.calls import Progress
from protocol.messages.health import FailedModel, HealthReport, RunningModel
from protocol.messages.models import Loaded, ModelEntry
from protocol.messages.peers import Peer
from protocol.models.recipes import ModelSpec

CPU = ModelEntry(
    "Qwen2.5-0.5B-Instruct-CPU", 1744173590, "amd/Qwen2.5-0.5B-cpu-onnx", "oga-cpu", "llm", True, labels=["hot", "cpu"]
)
ABSENT = ModelEntry("Llama-3.2-1B-Hybrid", 1744173590, "amd/Llama-hybrid", "oga-hybrid", "llm", False, size=1.5)
UNKNOWN = Failure(Code.MODEL_NOT_FOUND, "no model is called No-Such-Model")
LOADED = Loaded("Qwen3-0.6B-GGUF", "unsloth/Qwen3-0.6B-GGUF:Q4_0", "llamacpp")


def spec(name: str, recipe: str = "llamacpp", backend: str = "cpu", **more: Any) -> ModelSpec:
    return ModelSpec(name, f"owner/{name}", recipe, backend, "llm", "/secret/model.gguf", **more)


def running(name: str, last_use: float, state: str = "ready", **more: Any) -> RunningModel:
    return RunningModel(spec(name, options={"ctx_size": 4096}), f"w-{name}", state, 11, last_use, **more)


def progress(done: int, total: int = 100, index: int = 1, of: int = 2) -> Progress:
    return Progress(0, "m", f"file{index}.gguf", index, of, done, total)


HEALTH = HealthReport(
    status="ok",
    version="1.2.3",
    boot="b",
    pid=7,
    uptime=12.3456,
    models=[
        running(
            *("old", 100.5),
            backend_url="http://127.0.0.1:8001",
            slots=4,
            granted=2,
            queued=1,
            load_seconds=0.25,
            engine_pid=21,
            command=["/opt/llama-server", "-m", "/models/old.gguf"],
            is_busy=True,
            pinned=True,
        ),
        running("new", 200.5, "draining", backend_url="http://127.0.0.1:8002/v1", ttl=60.0, expires_at=260.5),
        running("coming", 300.5, "loading"),
    ],
    max_models={"llm": 4, "embedding": 3, "reranking": 2, "audio": 1, "image": 1, "tts": 1},
    granted=2,
    queued=1,
    troubled=[FailedModel("bad", Failure(Code.LOAD_FAILED, "it did not load", detail="SIGILL"), 3, 7.5)],
    downloads=["m"],
    peers=[Peer("worker", "w1", 11)],
    counters={"evictions": 2},
)
