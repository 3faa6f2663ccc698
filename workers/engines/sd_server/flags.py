"""The command line of our sd-server: a table, and a strict reader that knows no library.

Names and meanings are sd-server's own. The worker reads a user's arguments with the same table before anything is
started, so that an unknown flag evicts no model.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from workers.engines import flags
from workers.engines.flags import Row, Value

PACKAGE: Final = "stable_diffusion_cpp"
"""The Python package that contains the library. It comes only as source, so installing it compiles it."""
KEY: Final = "SD_SERVER_API_KEY"
"""Variable with the key that callers must show. It is ours: the original has no keys."""

_ROWS: Final[list[Row]] = [
    ("-l --listen-ip", "host", str, ""),
    ("--listen-port", "port", int, 0),
    ("-v --verbose", "verbose", None, True),
    ("--version", "version", None, True),
    ("-m --model", "context.model_path", str, ""),
    ("--clip_l", "context.clip_l_path", str, ""),
    ("--clip_g", "context.clip_g_path", str, ""),
    ("--clip_vision", "context.clip_vision_path", str, ""),
    ("--t5xxl", "context.t5xxl_path", str, ""),
    ("--llm --qwen2vl", "context.llm_path", str, ""),
    ("--llm_vision --qwen2vl_vision", "context.llm_vision_path", str, ""),
    ("--diffusion-model", "context.diffusion_model_path", str, ""),
    ("--high-noise-diffusion-model", "context.high_noise_diffusion_model_path", str, ""),
    ("--vae", "context.vae_path", str, ""),
    ("--tae --taesd", "context.taesd_path", str, ""),
    ("--control-net", "context.control_net_path", str, ""),
    ("--photo-maker", "context.photo_maker_path", str, ""),
    ("--tensor-type-rules", "context.tensor_type_rules", str, ""),
    ("-t --threads", "context.n_threads", int, 0),
    ("--type", "context.wtype", str, ""),
    ("--rng", "context.rng_type", str, ""),
    ("--sampler-rng", "context.sampler_rng_type", str, ""),
    ("--prediction", "context.prediction", str, ""),
    ("--max-vram", "context.max_vram", float, 0.0),
    ("--offload-to-cpu", "context.offload_params_to_cpu", None, True),
    ("--mmap", "context.enable_mmap", None, True),
    ("--clip-on-cpu", "context.keep_clip_on_cpu", None, True),
    ("--control-net-cpu", "context.keep_control_net_on_cpu", None, True),
    ("--vae-on-cpu", "context.keep_vae_on_cpu", None, True),
    ("--fa", "context.flash_attn", None, True),
    ("--diffusion-fa", "context.diffusion_flash_attn", None, True),
    ("--diffusion-conv-direct", "context.diffusion_conv_direct", None, True),
    ("--vae-conv-direct", "context.vae_conv_direct", None, True),
    ("--force-sdxl-vae-conv-scale", "context.force_sdxl_vae_conv_scale", None, True),
    ("--circularx", "context.circular_x", None, True),
    ("--circulary", "context.circular_y", None, True),
    ("--chroma-disable-dit-mask", "context.chroma_use_dit_mask", None, False),
    ("--chroma-enable-t5-mask", "context.chroma_use_t5_mask", None, True),
    ("--chroma-t5-mask-pad", "context.chroma_t5_mask_pad", int, 0),
    ("--qwen-image-zero-cond-t", "context.qwen_image_zero_cond_t", None, True),
    ("-W --width", "picture.width", int, 0),
    ("-H --height", "picture.height", int, 0),
    ("-s --seed", "picture.seed", int, 0),
    ("-n --negative-prompt", "picture.negative_prompt", str, ""),
    ("--clip-skip", "picture.clip_skip", int, 0),
    ("--steps", "picture.sample_params.sample_steps", int, 0),
    ("--sampling-method", "picture.sample_params.sample_method", str, ""),
    ("--scheduler", "picture.sample_params.scheduler", str, ""),
    ("--eta", "picture.sample_params.eta", float, 0.0),
    ("--flow-shift", "picture.sample_params.flow_shift", float, 0.0),
    ("--cfg-scale", "picture.sample_params.guidance.txt_cfg", float, 0.0),
    ("--img-cfg-scale", "picture.sample_params.guidance.img_cfg", float, 0.0),
    ("--guidance", "picture.sample_params.guidance.distilled_guidance", float, 0.0),
    ("--vae-tiling", "picture.vae_tiling_params.enabled", None, True),
]

FLAGS: Final = flags.table(_ROWS)
"""Targets: ``context.FIELD`` and ``picture.FIELD`` of the library's parameters, or a name of the server's own."""


def parse(words: Sequence[str]) -> list[tuple[str, Value]]:
    """Return (target, value) in the order given; raises :class:`~workers.engines.flags.FlagError`."""
    return flags.parse(words, FLAGS)


def version() -> str:
    """Return the version of the Python package that contains the library; empty if it is not installed."""
    package = importlib.util.find_spec(PACKAGE)
    for folder in (package.submodule_search_locations or []) if package else []:
        # Its distribution has another name than the module.
        for facts in Path(folder).parent.glob(f"{PACKAGE}*-*.dist-info"):
            return facts.name.removesuffix(".dist-info").rpartition("-")[2]
    return ""
