"""FastFlowLM's recipe: models on AMD's NPU, its options, and what it serves."""

from __future__ import annotations

from typing import Final

from protocol.models.devices import Device
from protocol.models.recipes import BackendDescriptor as Program
from protocol.models.recipes import IdleCheck, LoadOption, ModelType, RecipeDescriptor
from workers.backends import client_arguments

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
        LoadOption("ctx_size", "int", "tokens that each request may use; 0: the model's own choice", 4096, 0, 2**24),
        LoadOption("flm_args", "args", "further arguments for flm serve", ""),
    ],
    forbidden_flags=[
        "--asr",
        "--ctx-len",
        "--embed",
        "--help",
        "--hf",
        "--hf-branch",
        "--host",
        "--json",
        "--port",
        "--quiet",
        "--version",
        "-a",
        "-c",
        "-e",
        "-h",
        "-j",
        "-p",
        "-v",
    ],
    checkpoint_scheme="flm",
    client_flags=[
        *client_arguments.valued("--pmode", "powersaver|balanced|performance|turbo"),
        *client_arguments.valued(
            "-q --q-len -s --socket -r --resize --img-pre-resize --preemption", client_arguments.COUNT
        ),
        *client_arguments.valued("--prefill-chunk-len", client_arguments.COUNT),
    ],
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
