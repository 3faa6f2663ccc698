"""Which recipe runs a model file, and what the model does, told by the file's first bytes and never by its name. Pure.

The end of a name only says how the bytes are to be read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from protocol.models import checkpoints
from workers.files import gguf, safetensors

HEAD: Final = 256 * 1024
"""Bytes of a file that are looked at: the header of a safetensors file lists text encoders before the diffusion model."""
SUFFIXES: Final = (".gguf", ".safetensors", ".bin")
_GGUF_HEAD: Final = 64 * 1024
"""Keys come before a vocabulary of megabytes, which need not be read."""
_ENCODERS: Final = frozenset(
    {"bert", "eurobert", "gemma-embedding", "jina-bert-v2", "jina-bert-v3", "modern-bert", "neo-bert", "nomic-bert"}
    | {"nomic-bert-moe", "t5encoder"}
)
"""Architectures of llama.cpp that write no text."""
_RANK: Final = 4
"""llama.cpp's pooling type of models that score a document; 1 to 3 make one vector of a text."""
_DIFFUSION: Final = frozenset(
    {"aura", "chroma", "cosmos", "flux", "hidream", "lumina2", "qwen_image", "sd1", "sd3", "sdxl", "z_image"}
)
"""Architectures that tools for GGUF files of diffusion models write."""
_DIFFUSION_TENSORS: Final = (
    *("cap_embedder.", "double_blocks.", "img_in.", "input_blocks.", "joint_blocks."),
    *("model.diffusion_model.", "transformer_blocks.", "unet."),
)
_PROJECTOR: Final = "clip"


class Identity(NamedTuple):
    """What a file is."""

    recipe: str
    """Empty for a part of a model: a vision projector."""
    labels: tuple[str, ...] = ()


def identify(name: str, head: bytes) -> Identity | None:
    """Return what the file of this name with these first bytes is; None if nothing here runs it."""
    lowered = name.lower()
    if lowered.endswith(".gguf"):
        return _gguf(gguf.head(head[:_GGUF_HEAD]))
    if lowered.endswith(".safetensors"):
        return Identity("sd-cpp", ("image",)) if _draws(safetensors.tensor_names(head)) else None
    return Identity("whispercpp", ("transcription",)) if head.startswith(checkpoints.GGML_MAGIC) else None


def _gguf(head: gguf.Head) -> Identity:
    if head.architecture == _PROJECTOR:
        return Identity("")
    if head.architecture in _DIFFUSION or _draws(head.tensors):
        return Identity("sd-cpp", ("image",))
    if head.pooling == _RANK:
        return Identity("llamacpp", ("reranking",))
    if head.pooling:
        return Identity("llamacpp", ("embeddings",))
    if head.architecture in _ENCODERS:
        # Files of rerankers that are older than their pooling type tell it in the model's title alone.
        return Identity("llamacpp", ("reranking" if "rerank" in head.name.lower() else "embeddings",))
    return Identity("llamacpp")


def _draws(tensors: tuple[str, ...] | list[str]) -> bool:
    return any(name.startswith(_DIFFUSION_TENSORS) for name in tensors)
