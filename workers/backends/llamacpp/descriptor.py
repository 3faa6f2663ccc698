"""llama.cpp's recipe: its backends, its options, what it serves, and the files that it runs."""

from __future__ import annotations

from typing import Final

from protocol.models.devices import Device
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
from workers.backends.flag_table import MAX_THREADS
from workers.backends.llamacpp.flags import MAX_SLOTS
from workers.backends.recipe import FileHead, Identity

_GENERATIONS: Final = ["chat/completions", "completions", "completion", "infill"]
_READS: Final = ["tokenize", "detokenize", "props", "slots"]
_CHAT_READS: Final = ["apply-template", "chat/completions/input_tokens"]

SLOTS: Final = 4
UNCACHED_SLOTS: Final = 16
"""Slots for a model of ``UNCACHED``. They take next to no memory, and an encoder computes the texts of all slots at once.

With few slots, its batches are small, and it is idle after each until the next requests come.
"""
SUFFIXES: Final = (".gguf",)
UNCACHED: Final = frozenset(
    {"bert", "jina-bert-v2", "jina-bert-v3", "modern-bert", "neo-bert", "nomic-bert", "nomic-bert-moe"}
)
"""Architectures for which llama.cpp has no KV cache."""
_ENCODERS: Final = UNCACHED | {"eurobert", "gemma-embedding", "t5encoder"}
"""Architectures of llama.cpp that do not write text."""
_RANK: Final = 4
"""llama.cpp's pooling type of models that score a document. Types 1 to 3 turn a text into one vector."""
_NO_MODELS: Final = frozenset({"adapter", "imatrix", "vocab"})
"""``general.type`` of files that are used beside a model, or to make one."""
_ADAPTER_TENSOR: Final = ".lora_a"
"""Suffixes of adapters' tensors; older files have no type."""
_PROJECTOR: Final = "clip"
"""Architecture of vision projectors."""


def _release(name: str, where: str, *devices: Device, systems: tuple[str, ...] = ("linux", "win32")) -> Program:
    return Program(
        name=name,
        devices=list(devices),
        executable="llama-server",
        provision=Provision.ARCHIVE,
        systems=list(systems),
        slots=SLOTS,
        help=f"a release's llama-server on {where}",
    )


DESCRIPTOR: Final = RecipeDescriptor(
    recipe="llamacpp",
    title="llama.cpp",
    backends=[
        Program(
            name="cpu",
            devices=[Device.CPU],
            executable="module:workers.engine_servers.llama_server",
            requires="xllamacpp",
            provision=Provision.WHEEL,
            slots=SLOTS,
            help="llama.cpp's server from the xllamacpp wheel, on the processor",
        ),
        Program(
            name="system",
            devices=[Device.CPU],
            executable="llama-server",
            home="https://github.com/ggml-org/llama.cpp",
            slots=SLOTS,
            help="the llama-server on PATH, or the one that the setting llama_server names",
        ),
        _release("vulkan", "any GPU with Vulkan", Device.CPU, Device.AMD_GPU, Device.NVIDIA_GPU),
        _release("rocm", "an AMD GPU with ROCm", Device.AMD_GPU),
        _release("cuda", "an NVIDIA GPU with CUDA", Device.NVIDIA_GPU),
        _release("metal", "a Mac", Device.APPLE_GPU, systems=("darwin",)),
    ],
    options=[
        context_option('0: what the model was trained for; -1 or "auto": as much of that as fits into memory'),
        LoadOption(
            "llamacpp_backend",
            "string",
            "which llama.cpp runs the model",
            "cpu",
            choices=["cpu", "system", "vulkan", "rocm", "cuda", "metal"],
        ),
        LoadOption(
            "gpu_layers", "int", "layers that a GPU computes; by default all, if the backend has a GPU", None, 0, 999
        ),
        LoadOption(
            "keep_prompt_cache",
            "bool",
            "when the engine ends, keep its prompt caches on the disk for the next load",
            default=False,
        ),
        LoadOption("llamacpp_args", "args", "further arguments for llama-server", ""),
        LoadOption(
            "slots",
            "int",
            "requests that run at once; 0: 4, or 16 for a BERT unless the backend is `system`",
            0,
            0,
            MAX_SLOTS,
        ),
        LoadOption("threads", "int", "threads of the engine; 0: its own choice", 0, 0, MAX_THREADS),
    ],
    model_files=ModelFileKind("GGUF file", [".gguf"]),
    projector=True,
    device_flag="--device",
    model_flag="--model",
    projector_flag="--mmproj",
    adapter_flag="--lora",
    forced_json=True,
    serves={
        ModelType.LLM: [*_GENERATIONS, *_CHAT_READS, *_READS],
        ModelType.EMBEDDING: ["embeddings", "embedding", *_READS],
        ModelType.RERANKING: ["rerank", *_READS],
    },
    idle_check={
        **dict.fromkeys(_GENERATIONS, IdleCheck.SLOTS),
        **dict.fromkeys(["embeddings", "embedding", "rerank", *_CHAT_READS, *_READS], IdleCheck.ANSWER),
    },
    sampling={
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "max_length": "max_tokens",
        "do_sample": "temperature",
    },
)


def identify(file: FileHead) -> Identity | None:
    """Return what a GGUF file is: a projector, a model that makes vectors or scores, or one that writes text.

    None for what only accompanies a model, such as a LoRA adapter.
    """
    head = file.gguf
    if head is None or head.kind in _NO_MODELS or any(name.endswith(_ADAPTER_TENSOR) for name in head.tensors):
        return None
    if head.architecture == _PROJECTOR:
        return Identity("")
    if head.pooling == _RANK:
        return Identity(DESCRIPTOR.recipe, ("reranking",))
    if head.pooling:
        return Identity(DESCRIPTOR.recipe, ("embeddings",))
    if head.architecture in _ENCODERS:
        # Rerankers older than their pooling type only say it in the model's title.
        return Identity(DESCRIPTOR.recipe, ("reranking" if "rerank" in head.name.lower() else "embeddings",))
    return Identity(DESCRIPTOR.recipe)
