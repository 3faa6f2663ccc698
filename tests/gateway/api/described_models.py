"""Descriptions of models for tests of the dialects that show them."""

from __future__ import annotations

from protocol.messages.model_details import FileFacts, ModelDetails
from protocol.messages.models import ModelEntry

LLAMA = ModelDetails(
    ModelEntry(
        "llama3.2-1b",
        1_744_173_590,
        "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
        "llamacpp",
        "llm",
        True,
        aliases=["llama3.2:1b"],
        given_names=["mine"],
    ),
    path="/secret/Llama-3.2-1B-Instruct-Q4_K_M.gguf",
    size=807_694_464,
    facts=FileFacts(
        "gguf",
        "llama",
        1_235_814_432,
        131_072,
        16,
        128_256,
        "Q4_K_M",
        "{{ tools }} {{ messages }}",
        "ab" * 32,
        {"general.architecture": "llama", "llama.context_length": 131_072, "general.license": "llama3.2"},
    ),
    is_default=True,
    context=4096,
    forced_json=True,
)
THINKER = ModelDetails(
    ModelEntry(
        "Qwen3-VL-4B-GGUF",
        1_744_173_600,
        "Qwen/Qwen3-VL:Q4_K_M",
        "llamacpp",
        "llm",
        True,
        loaded=True,
        device="gpu",
        labels=["vision", "reasoning", "tool-calling"],
    ),
    path="/secret/q.gguf",
    size=3_000_000_000,
    state="ready",
    granted=2,
    context=8192,
    gpu_layers=35,
    memory=4_000_000_000,
)
VECTORS = ModelDetails(
    ModelEntry("nomic-embed-text-v1-GGUF", 1, "nomic-ai/n:Q4", "llamacpp", "embedding", True, aliases=["nomic-embed"]),
    path="/secret/n.gguf",
    size=78_000_000,
    facts=FileFacts("gguf", "nomic-bert", 136_727_040, template="<think> {{ tools }}"),
)
