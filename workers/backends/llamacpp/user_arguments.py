"""The user's arguments of a llama-server are checked here, and others computed: slots, devices, the batch. Pure.

llama-server looks for cancelled requests between two batches, and cannot be interrupted inside one: so a cancelled
request holds its slot for up to one batch. A small batch costs speed: 3,000 tokens of a model with 135 million
parameters are read on 2 threads at 0.78 of full speed with 64 tokens a batch, at 0.88 with 128, at 0.95 with 256. So
the batch is the largest one that an ordinary processor computes within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from protocol.failures import invalid
from protocol.models.devices import is_gpu_number
from workers.backends.llamacpp.flags import FLAGS
from workers.backends.user_arguments import check_arguments

OPTION: Final = "llamacpp_args"
MAX_SLOTS: Final = 256
MIN_BATCH_TOKENS: Final = 64
MAX_BATCH_TOKENS: Final = 512
"""llama-server computes no more at a time, however large its batch is."""
TARGET_S: Final = 1.0
BYTES_PER_THREAD_SECOND: Final = 15e9
"""Tokens times bytes of the model that a thread computes in a second: a busy 2-core server needs 6.3 ms a token for 98 MB."""


def check_llamacpp_args(args: str) -> list[str]:
    """Return the words of ``llamacpp_args``; raises ``invalid_request`` naming a flag that lemonbus sets."""
    words = check_arguments(OPTION, FLAGS, args)
    slots_of(words)
    return words


def slots_of(words: Sequence[str], option: int = 0) -> int:
    """Return how many requests run at once: ``-np`` in the arguments, else the option; raises ``invalid_request``."""
    given = FLAGS.value_of(words, "-np")
    if given is None:
        return option
    if not given.isascii() or not given.isdigit() or not 1 <= int(given[:6]) <= MAX_SLOTS:
        raise invalid(f"{OPTION}: -np needs a number from 1 to {MAX_SLOTS}, not {given!r}", OPTION)
    return int(given)


def prompt_batch_tokens(model_bytes: int, threads: int) -> int:
    """Return the batch for a model of this size; the smallest one if the size is unknown (0)."""
    if model_bytes <= 0:
        return MIN_BATCH_TOKENS
    within_target = TARGET_S * BYTES_PER_THREAD_SECOND * max(1, threads) / model_bytes
    batch = MIN_BATCH_TOKENS
    while batch < MAX_BATCH_TOKENS and 2 * batch <= within_target:
        batch *= 2
    return batch


def device_arguments(flag: str, devices: Sequence[str]) -> list[str]:
    """Return the arguments that name devices in the engine's own words; none for numbers, which become variables."""
    if not flag or not devices or all(map(is_gpu_number, devices)):
        return []
    return [flag, ",".join(devices)]
