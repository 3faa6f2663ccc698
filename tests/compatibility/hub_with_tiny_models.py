"""A hub on loopback with the repositories of the documents' examples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fakes.hub import Hub
from tests.support.models.genai_models import genai_repository_files
from tests.support.models.tiny_models import tiny_models

QWEN = "Qwen3-0.6B-GGUF"
"""A model of the catalogue that the documents load; here the hub has a tiny one under its name."""
CPU = "Qwen2.5-0.5B-Instruct-CPU"
HYBRID = "Llama-3.2-1B-Instruct-Hybrid"
"""Models of ONNX Runtime GenAI of the catalogue; the hub has tiny ones."""
ONNX = "somebody/Preview-int4-onnx-hybrid"
"""One that is in no catalogue."""
WHISPER_CHECKPOINT = "ggerganov/whisper.cpp:ggml-large-v3-turbo-q8_0.bin"
"""What the document's whisper model means."""
UNREGISTERED = "somebody/Preview-GGUF:Q4_0"
"""A checkpoint that is in no catalogue: what the preview calls ``<HUGGINGFACE_CHECKPOINT>``."""


@contextmanager
def hub_with_tiny_models(folder: Path) -> Iterator[Hub]:
    """Let servers that are started meanwhile find this hub, and a hub cache of their own."""
    tiny = tiny_models() / "models"
    repositories = {
        "unsloth/Qwen3-0.6B-GGUF": {"Qwen3-0.6B-Q4_0.gguf": (tiny / "tiny-chat.gguf").read_bytes()},
        "amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx": genai_repository_files("tiny-oga", folder),
        "amd/Llama-3.2-1B-Instruct-awq-g128-int4-asym-fp16-onnx-hybrid": genai_repository_files(
            "tiny-oga-plain", folder
        ),
        ONNX: genai_repository_files("tiny-oga-loop", folder),
        WHISPER_CHECKPOINT.partition(":")[0]: {
            WHISPER_CHECKPOINT.partition(":")[2]: (tiny / "tiny-whisper.bin").read_bytes()
        },
        "somebody/Preview-GGUF": {"Preview-Q4_0.gguf": (tiny / "tiny-loop.gguf").read_bytes()},
    }
    with Hub(repositories) as hub, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.url)
        patch.setenv("HF_HOME", str(folder / "hf"))
        yield hub
