"""FastFlowLM: language models on AMD's NPU. What can be installed and asked of it; no adapter runs it yet."""

from __future__ import annotations

from typing import Final

from protocol.recipes import Backend as Program
from protocol.recipes import Descriptor, Device, IdleCheck, ModelType, Option

DESCRIPTOR: Final = Descriptor(
    recipe="flm",
    title="FastFlowLM",
    backends=[
        Program(
            name="npu",
            devices=[Device.AMD_NPU],
            executable="flm",
            home="https://github.com/FastFlowLM/FastFlowLM",
            help="the flm on PATH, on an AMD NPU",
        )
    ],
    options=[
        Option("ctx_size", "int", "tokens that each request may use; 0: the model's own choice", 4096, 0, 2**24),
        Option("flm_args", "args", "further arguments for flm serve", ""),
    ],
    forbidden_flags=["--ctx-len", "--host", "--port", "--quiet"],
    serves={ModelType.LLM: ["chat/completions"]},
    idle_check={"chat/completions": IdleCheck.ANSWER},
    silence_by_cpu=False,
    sampling={
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "max_length": "max_tokens",
        "do_sample": "temperature",
    },
)
