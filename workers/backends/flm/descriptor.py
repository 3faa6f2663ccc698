"""FastFlowLM's recipe: models on AMD's NPU, its flags and options, and what it serves."""

from __future__ import annotations

from functools import partial
from typing import Final

from protocol.models.devices import Device
from protocol.models.recipes import MAX_CTX_SIZE, IdleCheck, LoadOption, ModelType, RecipeDescriptor
from protocol.models.recipes import BackendDescriptor as Program
from workers.backends.flag_table import COUNT, TEXT, Flag, FlagTable, Setter, one_of

_lemonbus: Final = partial(Flag, setter=Setter.LEMONBUS)

FLAGS: Final = FlagTable(
    _lemonbus("-c --ctx-len", COUNT, option="ctx_size"),
    _lemonbus("--host -p --port", TEXT),
    _lemonbus("-a --asr -e --embed --hf --hf-branch", TEXT),
    _lemonbus("-h --help -j --json --quiet -v --version"),
    Flag("--cors", COUNT, setter=Setter.OPERATOR),
    Flag("--pmode", one_of("powersaver", "balanced", "performance", "turbo")),
    Flag("-q --q-len -s --socket -r --resize --img-pre-resize --preemption --prefill-chunk-len", COUNT),
)

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
        LoadOption(
            "ctx_size", "int", "tokens that each request may use; 0: the model's own choice", 4096, 0, MAX_CTX_SIZE
        ),
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
