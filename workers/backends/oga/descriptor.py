"""ONNX Runtime GenAI: the four recipes of one family, their backends, their options, and what they serve.

A recipe is named after the device that its models are made for. ``oga-cpu``, ``oga-hybrid`` and ``oga-npu`` are the
older names; ``ryzenai-llm`` is the newer one for both kinds that need an NPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from protocol.models.devices import HYBRID, Device
from protocol.models.recipes import BackendDescriptor as Program
from protocol.models.recipes import (
    IdleCheck,
    LoadOption,
    ModelFileKind,
    ModelType,
    Provision,
    RecipeDescriptor,
    context_option,
)
from protocol.models.repository_files import GENAI_CONFIG
from workers.backends.flag_table import MAX_THREADS

_CPU: Final = Program(
    name="cpu",
    devices=[Device.CPU],
    executable="module:workers.engine_servers.oga_server",
    requires="onnxruntime_genai",
    provision=Provision.WHEEL,
    help="ONNX Runtime GenAI from its wheels, on the processor",
)
_SHARED: Final = structs.replace(_CPU, shares="oga-cpu:cpu")
_HOME: Final = "https://ryzenai.docs.amd.com"
_NPU: Final = Program(
    name="npu",
    devices=[Device.AMD_NPU],
    executable="ryzenai-server",
    systems=["win32"],
    home=_HOME,
    help="the ryzenai-server on PATH, on an AMD NPU",
)
_HYBRID: Final = Program(
    name="hybrid",
    devices=[Device.AMD_NPU],
    beside=[Device.AMD_GPU],
    executable="ryzenai-server",
    systems=["win32"],
    home=_HOME,
    help="the ryzenai-server on PATH, on an AMD NPU and the GPU beside it",
)


def _recipe(
    name: str, title: str, *backends: Program, hint_devices: Sequence[str] = (), folder_file: str = ""
) -> RecipeDescriptor:
    options = [
        context_option('0: what the model was made for; -1 or "auto": as much of that as fits into memory'),
        LoadOption("threads", "int", "threads of the engine on a processor; 0: its own choice", 0, 0, MAX_THREADS),
    ]
    if len(backends) > 1:
        names = [backend.name for backend in backends]
        options.append(LoadOption(f"{name}_backend", "string", "what runs the model", choices=names))
    return RecipeDescriptor(
        recipe=name,
        title=title,
        backends=list(backends),
        options=options,
        model_files=ModelFileKind("ONNX model", other_suffixes=[".gguf", ".bin"]),
        name_hint="onnx" if hint_devices else "",
        hint_devices=list(hint_devices),
        folder_file=folder_file,
        serves={ModelType.LLM: ["chat/completions", "completions", "chat/completions/input_tokens"]},
        idle_check={
            "chat/completions": IdleCheck.CLOSED,
            "completions": IdleCheck.CLOSED,
            "chat/completions/input_tokens": IdleCheck.ANSWER,
        },
        sampling={
            "temperature": "temperature",
            "top_p": "top_p",
            "top_k": "top_k",
            "min_length": "min_length",
            "max_length": "max_tokens",
            "do_sample": "temperature",
        },
    )


DESCRIPTORS: Final = [
    _recipe("oga-cpu", "ONNX Runtime GenAI on the processor", _CPU, hint_devices=["cpu"], folder_file=GENAI_CONFIG),
    _recipe("oga-hybrid", "ONNX Runtime GenAI on NPU and GPU", _HYBRID, _SHARED, hint_devices=[HYBRID]),
    _recipe("oga-npu", "ONNX Runtime GenAI on the NPU", _NPU, _SHARED, hint_devices=["npu"]),
    _recipe("ryzenai-llm", "Ryzen AI", _NPU, _HYBRID, _SHARED),
]
