"""Identifies diffusion models by the header of their file. Pure."""

from __future__ import annotations

from typing import Final

from workers.backends.recipe import FileHead, Identity
from workers.backends.sdcpp.descriptor import DESCRIPTOR

SUFFIXES: Final = (".gguf", ".safetensors")
_DIFFUSION: Final = frozenset(
    {"aura", "chroma", "cosmos", "flux", "hidream", "lumina2", "qwen_image", "sd1", "sd3", "sdxl", "z_image"}
)
"""Architectures that tools for GGUF files of diffusion models write."""
_DIFFUSION_TENSORS: Final = (
    *("cap_embedder.", "double_blocks.", "img_in.", "input_blocks.", "joint_blocks."),
    *("model.diffusion_model.", "transformer_blocks.", "unet."),
)


def identify(file: FileHead) -> Identity | None:
    """Return what a GGUF or safetensors file is, if it is a diffusion model."""
    known = file.gguf is not None and file.gguf.architecture in _DIFFUSION
    if known or any(name.startswith(_DIFFUSION_TENSORS) for name in file.tensors):
        return Identity(DESCRIPTOR.recipe, (DESCRIPTOR.label,))
    return None
