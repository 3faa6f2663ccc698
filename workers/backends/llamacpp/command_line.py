"""llama-server's command line, written from a model and its options. Pure, except for the size of the model's files.

llama-server looks for cancelled requests between two batches, and cannot be interrupted inside one: so a cancelled
request holds its slot for up to one batch. A small batch costs speed: 3,000 tokens of a model with 135 million
parameters are read on 2 threads at 0.78 of full speed with 64 tokens a batch, at 0.88 with 128, at 0.95 with 256. So
the batch is the largest one that an ordinary processor computes within a second. A GPU gets llama-server's own batch.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocol.models.devices import Device, is_gpu_number
from protocol.models.recipes import BackendDescriptor, ModelSpec, ModelType, Provision
from workers.backends.llama_server_api import SAMPLING_FLAGS
from workers.backends.llamacpp.descriptor import DESCRIPTOR
from workers.backends.llamacpp.flags import FLAGS
from workers.files import gguf

TYPE_FLAGS: Final[dict[str, str]] = {ModelType.EMBEDDING: "--embeddings", ModelType.RERANKING: "--reranking"}
MAX_PROMPT_CACHE_MIB: Final = 256
"""Host memory for prompt caches of past requests. llama-server's default of 8 GiB would push a small machine into swap."""
MIN_PROMPT_CACHE_MIB: Final = 4
WARNING_VERBOSITY: Final = "2"
"""llama.cpp's verbosity for warnings and errors."""
MAX_INPUT_TOKENS: Final = 8192
"""Embedding and reranking models read an input in one batch, whose buffers grow with it. Longer inputs are refused."""
MIN_BATCH_TOKENS: Final = 64
MAX_BATCH_TOKENS: Final = 512
"""llama-server computes no more at a time, however large its batch is."""
GPU_NODES: Final = ("nvidia[0-9]*", "kfd", "dri/renderD*")
"""Device nodes, one of which a program needs to use a GPU."""
TARGET_S: Final = 1.0
BYTES_PER_THREAD_SECOND: Final = 15e9
"""Tokens times bytes of the model that a thread computes in a second: a busy 2-core server needs 6.3 ms a token for 98 MB."""


def server_arguments(
    spec: ModelSpec,
    program: BackendDescriptor,
    user_words: Sequence[str],
    *,
    port: int,
    alias: str,
    slots: int,
    context: int,
    gpu_layers: int,
    threads: int,
    prompt_cache: int,
    saved: Path,
    quiet: bool,
    dev: Path = Path("/dev"),
) -> list[str]:
    """Return the arguments of a server. The user's come last, so they take precedence.

    ``context``: tokens of each of the ``slots``, 0 if left to the engine. ``threads``: 0 for the engine's own choice.
    ``prompt_cache``: MiB of the host's memory for prompts that no slot has any more.
    ``saved``: the directory of saved prompt caches. ``quiet``: only warnings and errors are wanted in the log. ``dev``: the
    directory of device nodes.
    """
    own_server, on_device = bool(program.requires), runs_on_device(program)
    words = ["-m", spec.path, "--host", "127.0.0.1", "--port", str(port), "-a", alias]
    words += ["--ctx-size", str(context * slots), "-np", str(slots)]
    words += ["--jinja", "--metrics", "--slots"]
    if own_server:
        words += ["--reuse-port"]
    if own_server and quiet:
        # A dozen lines per request, which this level hides, cost as much as some tokens.
        words += ["-lv", WARNING_VERBOSITY]
    # 0 is told as well: without the flag, a program that has a GPU uses it.
    if on_device or "gpu_layers" in spec.options:
        words += ["-ngl", str(gpu_layers)]
    # Our own server uses the processor alone, and has no such flag.
    words += device_arguments("" if own_server else DESCRIPTOR.device_flag, spec.devices)
    if threads:
        words += ["-t", str(threads)]
    if spec.type in TYPE_FLAGS:
        words += [TYPE_FLAGS[spec.type]]
        whole = str(max(512, min(context or MAX_INPUT_TOKENS, MAX_INPUT_TOKENS)))
        words += ["-b", whole, "-ub", whole]
    else:
        words += SAMPLING_FLAGS
        if not on_device and not _may_use_gpu(spec, program, user_words, dev):
            words += ["-b", str(prompt_batch_tokens(_model_bytes(spec.path), threads or len(os.sched_getaffinity(0))))]
        if spec.mmproj:
            words += ["--mmproj", spec.mmproj]
    if FLAGS.value_of(user_words, "--cache-ram") is None:
        words += ["--cache-ram", str(prompt_cache)]
    if FLAGS.value_of(user_words, "--slot-save-path") is None:
        words += ["--slot-save-path", f"{saved}/"]
    return [*words, *user_words]


def runs_on_device(program: BackendDescriptor) -> bool:
    """Return whether a program computes on something besides the processor."""
    return any(device != Device.CPU for device in program.devices)


def _may_use_gpu(spec: ModelSpec, program: BackendDescriptor, user_words: Sequence[str], dev: Path) -> bool:
    """Return whether a user's own program, of which nothing else is known, may compute on a GPU of this machine."""
    named = FLAGS.value_of(user_words, "--device")
    devices = spec.devices if named is None else named.split(",")
    if program.provision is not Provision.USER or spec.options.get("gpu_layers") == 0 or "none" in devices:
        return False
    return has_gpu_node(dev)


def has_gpu_node(dev: Path = Path("/dev")) -> bool:
    """Return whether a program of this machine may use a GPU."""
    return any(list(dev.glob(pattern)) for pattern in GPU_NODES)


def _model_bytes(path: str) -> int:
    """Return the size of the model's files; 0 if they cannot be read, which the check or the engine reports."""
    try:
        return sum(part.stat().st_size for part in gguf.parts_of(Path(path)))
    except OSError:
        return 0


def prompt_batch_tokens(model_bytes: int, threads: int) -> int:
    """Return the batch for a model of this size; the smallest one if the size is unknown (0)."""
    if model_bytes <= 0:
        return MIN_BATCH_TOKENS
    within_target = TARGET_S * BYTES_PER_THREAD_SECOND * max(1, threads) / model_bytes
    batch = MIN_BATCH_TOKENS
    while batch < MAX_BATCH_TOKENS and 2 * batch <= within_target:
        batch *= 2
    return batch


def prompt_cache_mebibytes(slot_caches: int) -> int:
    """Return the memory for prompts that no slot has any more: as much as the slots' own caches have, within limits.

    ``slot_caches``: their bytes; 0 if unknown. A small model is not worth 256 MiB.
    """
    wanted = -(-slot_caches // 1024**2) if slot_caches else MAX_PROMPT_CACHE_MIB
    return max(MIN_PROMPT_CACHE_MIB, min(wanted, MAX_PROMPT_CACHE_MIB))


def device_arguments(flag: str, devices: Sequence[str]) -> list[str]:
    """Return the arguments that name devices in the engine's own words; none for numbers, which become variables."""
    if not flag or not devices or all(map(is_gpu_number, devices)):
        return []
    return [flag, ",".join(devices)]
