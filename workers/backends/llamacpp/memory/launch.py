"""What of a llama-server's command line decides about its memory. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from workers.backends.llamacpp.flags import ALL_LAYERS, FLAGS

MIB: Final = 1024**2
DEFAULT_BATCH: Final = 2048
DEFAULT_MICRO_BATCH: Final = 512
DEFAULT_PROMPT_CACHE_MIB: Final = 8192
DEFAULT_CHECKPOINTS: Final = 32
_OFF: Final = frozenset({"off", "disabled", "false", "0", "no"})


class Launch(NamedTuple):
    """What of a command line decides about memory."""

    context: int
    """Tokens of each slot."""
    slots: int
    micro_batch: int
    key_type: str
    value_type: str
    unified: bool
    whole_windows: bool
    mapped: bool
    locked: bool
    repacks: bool
    flash: bool
    embeds: bool
    gpu_layers: int
    cache_on_device: bool
    prompt_cache: int
    """Bytes."""
    checkpoints: int

    @property
    def streams(self) -> int:
        """How many caches there are."""
        return 1 if self.unified else self.slots


def read_launch(words: Sequence[str], context: int, slots: int) -> Launch:
    """Read a command line; ``context`` and ``slots`` are known already."""
    number = number_reader(words)
    batch = number(DEFAULT_BATCH, "-b")
    return Launch(
        context=context,
        slots=slots,
        micro_batch=max(1, min(batch, number(DEFAULT_MICRO_BATCH, "-ub"), context * slots or batch)),
        key_type=FLAGS.value_of(words, "-ctk") or "f16",
        value_type=FLAGS.value_of(words, "-ctv") or "f16",
        unified=FLAGS.last_of(words, "--kv-unified", "--no-kv-unified") == "--kv-unified",
        whole_windows=FLAGS.last_of(words, "--swa-full") is not None,
        mapped=FLAGS.last_of(words, "--mmap", "--no-mmap") != "--no-mmap",
        locked=FLAGS.last_of(words, "--mlock") is not None,
        repacks=FLAGS.last_of(words, "--no-repack") is None,
        flash=(FLAGS.value_of(words, "-fa") or "auto").lower() not in _OFF,
        embeds=FLAGS.last_of(words, "--embeddings", "--reranking") is not None,
        gpu_layers=number(ALL_LAYERS, "-ngl"),
        cache_on_device=FLAGS.last_of(words, "--no-kv-offload", "--kv-offload") != "--no-kv-offload",
        prompt_cache=number(DEFAULT_PROMPT_CACHE_MIB, "--cache-ram") * MIB,
        checkpoints=number(DEFAULT_CHECKPOINTS, "--ctx-checkpoints"),
    )


def number_reader(words: Sequence[str]) -> Callable[[int, str], int]:
    """Return a function that reads the number of a flag; its first argument is the default, also for a wrong or negative one."""

    def number(default: int, name: str) -> int:
        try:
            value = int(FLAGS.value_of(words, name) or default)
        except ValueError:
            return default
        return value if value >= 0 else default

    return number
