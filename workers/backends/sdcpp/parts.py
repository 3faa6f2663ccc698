"""What a file beside a diffusion model is, by its first bytes: one of the model's parts, or nothing of it. Pure."""

from __future__ import annotations

from typing import Final

from workers.backends.recipe import FileHead

_BY_TENSORS: Final = {
    "clip_g": ("text_model.encoder.layers.31.",),
    "clip_l": ("text_model.encoder.layers.11.",),
    "t5xxl": ("encoder.block.0.layer.0.SelfAttention.", "enc.blk.0."),
    "tae": ("decoder.layers.",),
    "vae": ("decoder.conv_in.", "decoder.conv1.", "decoder.up.0."),
    "text_encoder": ("model.embed_tokens.", "model.language_model.", "token_embd."),
}
"""Part → how names of its tensors begin. Of two that fit, the first counts: both encoders of CLIP have a layer 11."""
_BY_ARCHITECTURE: Final = {
    **dict.fromkeys(("t5", "t5encoder"), "t5xxl"),
    **dict.fromkeys(("qwen2vl", "qwen3", "qwen3vl", "mistral3", "gemma2", "gemma3"), "text_encoder"),
    "clip": "llm_vision",
}
"""Architecture of a GGUF file → the part. The vocabulary of a language model comes before its tensors, which are then not read."""
_WITH_ENCODERS: Final = ("model.diffusion_model.", "cond_stage_model.", "conditioner.", "text_encoders.")
"""How names of tensors begin in files that usually hold a whole model, with its text encoders."""
_DECODERS: Final = frozenset({"vae", "tae"})


def identify_part(file: FileHead) -> str:
    """Return the part that a file is; empty if it is none."""
    for part, beginnings in _BY_TENSORS.items():
        if any(name.startswith(beginnings) for name in file.tensors):
            return part
    return _BY_ARCHITECTURE.get(file.gguf.architecture, "") if file.gguf is not None else ""


def may_have(main: FileHead, parts: set[str]) -> bool:
    """Return whether a diffusion model may have these parts: a file with text encoders inside gets only another decoder."""
    whole = any(name.startswith(_WITH_ENCODERS) for name in main.tensors)
    return parts <= _DECODERS if whole else True
