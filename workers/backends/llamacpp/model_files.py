"""Identifies GGUF files of llama.cpp by their header. Pure."""

from __future__ import annotations

from typing import Final

from workers.backends.llamacpp.descriptor import DESCRIPTOR
from workers.backends.recipe import FileHead, Identity

SUFFIXES: Final = (".gguf",)
_ENCODERS: Final = frozenset(
    {"bert", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "modern-bert", "neo-bert", "nomic-bert"}
    | {"nomic-bert-moe", "t5encoder"}
)
"""Architectures of llama.cpp that do not write text."""
_RANK: Final = 4
"""llama.cpp's pooling type of models that score a document. Types 1 to 3 turn a text into one vector."""
_NO_MODELS: Final = frozenset({"adapter", "imatrix", "vocab"})
"""``general.type`` of files that are used beside a model, or to make one."""
_ADAPTER_TENSOR: Final = ".lora_a"
"""Suffixes of adapters' tensors; older files have no type."""
_PROJECTOR: Final = "clip"
"""Architecture of vision projectors."""


def identify(file: FileHead) -> Identity | None:
    """Return what a GGUF file is: a projector, a model that makes vectors or scores, or one that writes text.

    None for what only accompanies a model, such as a LoRA adapter.
    """
    head = file.gguf
    if head is None or head.kind in _NO_MODELS or any(name.endswith(_ADAPTER_TENSOR) for name in head.tensors):
        return None
    if head.architecture == _PROJECTOR:
        return Identity("")
    if head.pooling == _RANK:
        return Identity(DESCRIPTOR.recipe, ("reranking",))
    if head.pooling:
        return Identity(DESCRIPTOR.recipe, ("embeddings",))
    if head.architecture in _ENCODERS:
        # Rerankers older than their pooling type only say it in the model's title.
        return Identity(DESCRIPTOR.recipe, ("reranking" if "rerank" in head.name.lower() else "embeddings",))
    return Identity(DESCRIPTOR.recipe)
