"""Flags of sd-server that a client may send with a load. Pure.

Left out on purpose: what writes files, changes the log, or names a directory whose files a prompt can then name
(``--lora-model-dir``, ``--embd-dir``).
"""

from __future__ import annotations

from typing import Final

from protocol.models.recipes import ClientFlag
from workers.backends.arguments import MAX_THREADS
from workers.backends.client_arguments import COUNT, INTEGER, NUMBER, WORD, file_flags, switches, valued

CLIENT_FLAGS: Final[list[ClientFlag]] = [
    *file_flags("--clip_g --clip_l --llm --qwen2vl --t5xxl --clip_vision --control-net --high-noise-diffusion-model"),
    *file_flags("--llm_vision --photo-maker --qwen2vl_vision --tae --taesd --vae"),
    *valued("-t --threads", COUNT, most=MAX_THREADS),
    *valued("--clip-skip --chroma-t5-mask-pad", COUNT, most=1_024),
    *valued("-s --seed", INTEGER),
    *valued("--type --rng --sampler-rng --prediction --sampling-method --scheduler", WORD),
    *valued("--tensor-type-rules", r"[\w.,=*^$|\\-]{1,1024}"),
    *valued("--max-vram --eta --flow-shift --img-cfg-scale --guidance", NUMBER),
    *valued("-n --negative-prompt", r"[^\0<>]{0,4096}"),
    *valued("--vae-tile-size --vae-relative-tile-size", r"[\d.]{1,8}x[\d.]{1,8}"),
    *valued("--vae-tile-overlap", NUMBER),
    *switches("--offload-to-cpu --mmap --clip-on-cpu --control-net-cpu --vae-on-cpu --fa --diffusion-fa"),
    *switches(
        "--diffusion-conv-direct --vae-conv-direct --force-sdxl-vae-conv-scale --circularx --circulary --circular"
    ),
    *switches("--chroma-disable-dit-mask --chroma-enable-t5-mask --qwen-image-zero-cond-t --vae-tiling"),
]
