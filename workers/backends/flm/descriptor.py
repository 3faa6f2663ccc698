"""FastFlowLM's recipe: models on AMD's NPU, its options, and what it serves."""

from __future__ import annotations

from typing import Final

from protocol.models.devices import Device
from protocol.models.recipes import BackendDescriptor as Program
from protocol.models.recipes import IdleCheck, LoadOption, ModelType, RecipeDescriptor, context_option

DESCRIPTOR: Final = RecipeDescriptor(
    recipe="flm",
    title="FastFlowLM",
    backends=[
        Program(
            name="npu",
            devices=[Device.AMD_NPU],
            executable="flm",
            home="https://github.com/FastFlowLM/FastFlowLM",
            help="the flm on PATH, on an AMD NPU",
            npu_per_type=True,
        )
    ],
    options=[
        context_option("0 and -1: the model's own choice"),
        LoadOption("flm_args", "args", "further arguments for flm serve", ""),
    ],
    checkpoint_scheme="flm",
    serves={
        ModelType.LLM: ["chat/completions", "completions"],
        ModelType.EMBEDDING: ["embeddings"],
        ModelType.AUDIO: ["audio/transcriptions"],
    },
    # It notices that the client of a chat hangs up; other requests run to their end.
    idle_check={
        "chat/completions": IdleCheck.SLOTS,
        "completions": IdleCheck.ANSWER,
        "embeddings": IdleCheck.ANSWER,
        "audio/transcriptions": IdleCheck.ANSWER,
    },
    silence_by_cpu=False,
    sampling={
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "max_length": "max_tokens",
        "do_sample": "temperature",
    },
)
