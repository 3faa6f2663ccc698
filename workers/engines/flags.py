"""The command line of our llama-server: a table, and a strict reader of such tables that knows no library.

Names and meanings are llama-server's, ``_`` counts as ``-`` in long ones. The worker reads a user's arguments
with the same table before anything is started, so that an unknown flag evicts nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

Value = int | float | str | bool
_TRUE: Final = frozenset({"on", "enabled", "true", "1", "yes"})
_FALSE: Final = frozenset({"off", "disabled", "false", "0", "no"})


class FlagError(ValueError):
    """A command line that the engine would refuse; the text says why."""


class Flag(NamedTuple):
    """One flag: where its value goes, how it is read, and what a bare one means."""

    target: str
    """Dotted attribute of llama.cpp's parameters, or a name in angle brackets for what needs more."""
    read: Callable[[str], Value] | None
    bare: Value = True


def _one_of(*names: str) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        if text not in names:
            raise ValueError(f"{text} (one of {', '.join(names)})")
        return text

    return read


def _on_off_auto(text: str) -> str:
    if text.lower() in _TRUE:
        return "enabled"
    if text.lower() in _FALSE:
        return "disabled"
    return str(_one_of("auto")(text))


_CACHE_TYPES: Final = _one_of("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

Row = tuple[str, str, Callable[[str], Value] | None, Value]
"""Names, and the three parts of a :class:`Flag`."""

_ROWS: Final[list[Row]] = [
    ("-m --model", "model.path", str, ""),
    ("-mm --mmproj", "mmproj.path", str, ""),
    ("-a --alias", "<alias>", str, ""),
    ("--host", "<host>", str, ""),
    ("--port", "port", int, 0),
    ("-c --ctx-size", "n_ctx", int, 0),
    ("-np --parallel", "n_parallel", int, 0),
    ("-b --batch-size", "n_batch", int, 0),
    ("-ub --ubatch-size", "n_ubatch", int, 0),
    ("-n --predict --n-predict", "n_predict", int, 0),
    ("--keep", "n_keep", int, 0),
    ("-t --threads", "<threads>", int, 0),
    ("-tb --threads-batch", "<threads_batch>", int, 0),
    ("--threads-http", "n_threads_http", int, 0),
    ("-to --timeout", "<timeout>", int, 0),
    ("-ngl --gpu-layers --n-gpu-layers", "n_gpu_layers", int, 0),
    ("--jinja", "use_jinja", None, True),
    ("--no-jinja", "use_jinja", None, False),
    ("--chat-template", "chat_template", str, ""),
    ("--chat-template-file", "<chat_template_file>", str, ""),
    ("--reasoning-format", "<reasoning_format>", _one_of("none", "auto", "deepseek", "deepseek-legacy"), ""),
    ("--embedding --embeddings", "embedding", None, True),
    ("--rerank --reranking", "<rerank>", None, True),
    ("--pooling", "<pooling>", _one_of("none", "mean", "cls", "last", "rank"), ""),
    ("--embd-normalize", "embd_normalize", int, 0),
    ("--lora", "<lora>", str, ""),
    ("--lora-scaled", "<lora_scaled>", str, ""),
    ("--lora-init-without-apply", "lora_init_without_apply", None, True),
    ("--metrics", "endpoint_metrics", None, True),
    ("--props", "endpoint_props", None, True),
    ("--slots", "endpoint_slots", None, True),
    ("--no-slots", "endpoint_slots", None, False),
    ("--slot-save-path", "<slot_save_path>", str, ""),
    ("-sps --slot-prompt-similarity", "slot_prompt_similarity", float, 0.0),
    ("-kvu --kv-unified", "kv_unified", None, True),
    ("-no-kvu --no-kv-unified", "kv_unified", None, False),
    ("-nkvo --no-kv-offload", "no_kv_offload", None, True),
    ("-fa --flash-attn", "<flash_attn>", _on_off_auto, ""),
    ("-ctk --cache-type-k", "<cache_type_k>", _CACHE_TYPES, ""),
    ("-ctv --cache-type-v", "<cache_type_v>", _CACHE_TYPES, ""),
    ("-cram --cache-ram", "cache_ram_mib", int, 0),
    ("--cache-idle-slots", "cache_idle_slots", None, True),
    ("--no-cache-idle-slots", "cache_idle_slots", None, False),
    ("-ctxcp --ctx-checkpoints --swa-checkpoints", "n_ctx_checkpoints", int, 0),
    ("--cache-prompt", "cache_prompt", None, True),
    ("--no-cache-prompt", "cache_prompt", None, False),
    ("--cache-reuse", "n_cache_reuse", int, 0),
    ("--context-shift", "ctx_shift", None, True),
    ("--no-context-shift", "ctx_shift", None, False),
    ("--swa-full", "swa_full", None, True),
    ("-cb --cont-batching", "cont_batching", None, True),
    ("-nocb --no-cont-batching", "cont_batching", None, False),
    ("--mmap", "<mmap>", None, True),
    ("--no-mmap", "<mmap>", None, False),
    ("--mlock", "<mlock>", None, True),
    ("--warmup", "warmup", None, True),
    ("--no-warmup", "warmup", None, False),
    ("--check-tensors", "check_tensors", None, True),
    ("-nr --no-repack", "no_extra_bufts", None, True),
    ("--rope-freq-base", "rope_freq_base", float, 0.0),
    ("--rope-freq-scale", "rope_freq_scale", float, 0.0),
    ("--sleep-idle-seconds", "sleep_idle_seconds", int, 0),
    ("--sse-ping-interval", "sse_ping_interval", int, 0),
    ("-md --model-draft --spec-draft-model", "speculative.draft.mparams.path", str, ""),
    ("-s --seed", "sampling.seed", int, 0),
    ("--temp --temperature", "sampling.temp", float, 0.0),
    ("--top-k", "sampling.top_k", int, 0),
    ("--top-p", "sampling.top_p", float, 0.0),
    ("--min-p", "sampling.min_p", float, 0.0),
    ("--repeat-penalty", "sampling.penalty_repeat", float, 0.0),
    ("--presence-penalty", "sampling.penalty_present", float, 0.0),
    ("--frequency-penalty", "sampling.penalty_freq", float, 0.0),
    ("-lv --verbosity --log-verbosity", "verbosity", int, 0),
    ("-v --verbose --log-verbose", "verbosity", None, 2**31 - 1),
    ("--ui --webui", "ui", None, True),
    ("--no-ui --no-webui", "ui", None, False),
    ("--offline", "offline", None, True),
    ("--reuse-port", "reuse_port", None, True),
    ("--version", "<version>", None, True),
]


def table(rows: Sequence[Row]) -> dict[str, Flag]:
    """Return the flags of a command line by their names."""
    return {name: Flag(target, read, bare) for names, target, read, bare in rows for name in names.split()}


LLAMA_SERVER_FLAGS: Final = table(_ROWS)
"""llama-server's."""


def parse(words: Sequence[str], flags: Mapping[str, Flag] = LLAMA_SERVER_FLAGS) -> list[tuple[str, Value]]:
    """Return (target, value) in the order given; raises :class:`FlagError`."""
    found: list[tuple[str, Value]] = []
    rest = iter(words)
    for word in rest:
        flag = flags.get(word) or flags.get(word.replace("_", "-") if word.startswith("--") else word)
        if flag is None:
            raise FlagError(f"unknown argument {word}")
        if flag.read is None:
            found.append((flag.target, flag.bare))
            continue
        text = next(rest, None)
        if text is None:
            raise FlagError(f"{word} needs a value")
        try:
            found.append((flag.target, flag.read(text)))
        except ValueError as problem:
            what = problem.args[0] if flag.read not in (int, float) else text
            raise FlagError(f"{word} cannot be {what}") from None
    return found
