"""The backend of a small model of llama.cpp."""

from __future__ import annotations

from typing import Any

from protocol.config.settings import Settings
from protocol.models.recipes import ModelSpec
from workers.backends.llamacpp.backend import LlamaCppBackend


def made(kind: str = "llm", backend: str = "cpu", home: str = "/home", **options: Any) -> LlamaCppBackend:
    spec = ModelSpec("user.a,b/c", "x", "llamacpp", backend, kind, "/models/x.gguf", options=options)
    return LlamaCppBackend(spec, Settings(cache_dir=home))
