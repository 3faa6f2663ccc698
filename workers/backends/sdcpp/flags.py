"""The flags of sd-server: their names and values, who may set each, and the load option behind it. Pure.

Names and meanings are sd-server's own. Flags that are not here are the operator's, and no flag of our own server. Left
to the operator on purpose is what writes files, changes the log, or names a directory whose files a prompt can then name
(``--lora-model-dir``, ``--embd-dir``).

Targets are ``context.FIELD`` and ``picture.FIELD`` of the library's parameters, or a name of the server's own.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from workers.backends.flag_table import (
    COUNT,
    FILE,
    INTEGER,
    MAX_THREADS,
    NUMBER,
    TEXT,
    WORD,
    Flag,
    FlagTable,
    Kind,
    Setter,
)

PACKAGE: Final = "stable_diffusion_cpp"
"""The Python package that contains the library. It comes only as source, so installing it compiles it."""
KEY: Final = "SD_SERVER_API_KEY"
"""Variable with the key that callers must show. It is ours: the original has no keys."""

_TILE: Final = Kind(r"[\d.]{1,8}x[\d.]{1,8}")
_lemonbus: Final = partial(Flag, setter=Setter.LEMONBUS)

_TEXT_ENCODERS: Final = (
    Flag("--clip_l", FILE, "context.clip_l_path"),
    Flag("--clip_g", FILE, "context.clip_g_path"),
    Flag("--t5xxl", FILE, "context.t5xxl_path"),
    Flag("--llm --qwen2vl", FILE, "context.llm_path"),
)

FLAGS: Final = FlagTable(
    # What lemonbus sets.
    _lemonbus("-l --listen-ip", TEXT, "host"),
    _lemonbus("--listen-port", INTEGER, "port"),
    _lemonbus("--serve-html-path", TEXT),
    _lemonbus("-m --model", FILE, "context.model_path"),
    _lemonbus("--diffusion-model", FILE, "context.diffusion_model_path"),
    _lemonbus("-W --width", INTEGER, "picture.width", option="width"),
    _lemonbus("-H --height", INTEGER, "picture.height", option="height"),
    _lemonbus("--steps", INTEGER, "picture.sample_params.sample_steps", option="steps"),
    _lemonbus("--cfg-scale", NUMBER, "picture.sample_params.guidance.txt_cfg", option="cfg_scale"),
    _lemonbus("--version", None, "version"),
    _lemonbus("-h --help"),
    # Further files of a model.
    *_TEXT_ENCODERS,
    Flag("--clip_vision", FILE, "context.clip_vision_path"),
    Flag("--llm_vision --qwen2vl_vision", FILE, "context.llm_vision_path"),
    Flag("--high-noise-diffusion-model", FILE, "context.high_noise_diffusion_model_path"),
    Flag("--vae", FILE, "context.vae_path"),
    Flag("--tae --taesd", FILE, "context.taesd_path"),
    Flag("--control-net", FILE, "context.control_net_path"),
    Flag("--photo-maker", FILE, "context.photo_maker_path"),
    # How the model is held and computed.
    Flag("-t --threads", COUNT.up_to(MAX_THREADS), "context.n_threads", option="threads"),
    Flag("--type", WORD, "context.wtype"),
    Flag("--tensor-type-rules", Kind(r"[\w.,=*^$|\\-]{1,1024}"), "context.tensor_type_rules"),
    Flag("--rng", WORD, "context.rng_type"),
    Flag("--sampler-rng", WORD, "context.sampler_rng_type"),
    Flag("--prediction", WORD, "context.prediction"),
    Flag("--max-vram", NUMBER, "context.max_vram"),
    Flag("--offload-to-cpu", None, "context.offload_params_to_cpu"),
    Flag("--mmap", None, "context.enable_mmap"),
    Flag("--clip-on-cpu", None, "context.keep_clip_on_cpu"),
    Flag("--control-net-cpu", None, "context.keep_control_net_on_cpu"),
    Flag("--vae-on-cpu", None, "context.keep_vae_on_cpu"),
    Flag("--fa", None, "context.flash_attn"),
    Flag("--diffusion-fa", None, "context.diffusion_flash_attn"),
    Flag("--diffusion-conv-direct", None, "context.diffusion_conv_direct"),
    Flag("--vae-conv-direct", None, "context.vae_conv_direct"),
    Flag("--force-sdxl-vae-conv-scale", None, "context.force_sdxl_vae_conv_scale"),
    Flag("--circularx", None, "context.circular_x"),
    Flag("--circulary", None, "context.circular_y"),
    Flag("--circular"),
    Flag("--chroma-disable-dit-mask", None, "context.chroma_use_dit_mask", bare=False),
    Flag("--chroma-enable-t5-mask", None, "context.chroma_use_t5_mask"),
    Flag("--chroma-t5-mask-pad", COUNT.up_to(1_024), "context.chroma_t5_mask_pad"),
    Flag("--qwen-image-zero-cond-t", None, "context.qwen_image_zero_cond_t"),
    # What a request for a picture does not say.
    Flag("-s --seed", INTEGER, "picture.seed"),
    Flag("-n --negative-prompt", Kind(r"[^\0<>]{0,4096}"), "picture.negative_prompt"),
    Flag("--clip-skip", COUNT.up_to(1_024), "picture.clip_skip"),
    Flag("--sampling-method", WORD, "picture.sample_params.sample_method", option="sampling_method"),
    Flag("--scheduler", WORD, "picture.sample_params.scheduler"),
    Flag("--eta", NUMBER, "picture.sample_params.eta"),
    Flag("--flow-shift", NUMBER, "picture.sample_params.flow_shift", option="flow_shift"),
    Flag("--img-cfg-scale", NUMBER, "picture.sample_params.guidance.img_cfg"),
    Flag("--guidance", NUMBER, "picture.sample_params.guidance.distilled_guidance"),
    Flag("--vae-tiling", None, "picture.vae_tiling_params.enabled"),
    Flag("--vae-tile-size --vae-relative-tile-size", _TILE),
    Flag("--vae-tile-overlap", NUMBER),
    Flag("-v --verbose", None, "verbose", Setter.OPERATOR),
)
PART_FLAGS: Final = {
    "text_encoder": "--llm",
    "clip_l": "--clip_l",
    "clip_g": "--clip_g",
    "t5xxl": "--t5xxl",
    "llm_vision": "--llm_vision",
    "clip_vision": "--clip_vision",
    "high_noise_diffusion_model": "--high-noise-diffusion-model",
    "vae": "--vae",
    "tae": "--tae",
}
"""Part of a model → the flag that names its file. ``text_encoder`` and ``vae`` are Lemonade's names, the others are sd-server's."""
TEXT_ENCODER_FLAGS: Final = frozenset(name for flag in _TEXT_ENCODERS for name in flag.names.split())
"""With one of these, the model's own file only holds the diffusion model."""
PARTS: Final = frozenset(FLAGS.names(lambda flag: flag.kind is FILE and flag.setter is Setter.CLIENT))
"""Flags that name further files of a model."""
