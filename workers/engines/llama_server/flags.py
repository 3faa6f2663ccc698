"""The command line of our llama-server: names and meanings are llama-server's. It knows no library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from workers.engines import flags
from workers.engines.flags import FlagError, Row, Value, one_of

_TRUE: Final = frozenset({"on", "enabled", "true", "1", "yes"})
_FALSE: Final = frozenset({"off", "disabled", "false", "0", "no"})


def _on_off_auto(text: str) -> str:
    if text.lower() in _TRUE:
        return "enabled"
    if text.lower() in _FALSE:
        return "disabled"
    return str(one_of("auto")(text))


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError(f"{text} (a number above 0)")
    return number


def _speculation(text: str) -> str:
    for name in text.split(","):
        one_of(*SPECULATION_TYPES)(name)
    return text


ALL_LAYERS: Final = 1000
"""More layers than any model has."""
SPECULATION_TYPES: Final = (
    *("none", "draft-simple", "draft-eagle3", "draft-mtp"),
    *("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
)
_CACHE_TYPES: Final = one_of("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

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
    ("--reasoning-format", "<reasoning_format>", one_of("none", "auto", "deepseek", "deepseek-legacy"), ""),
    ("--embedding --embeddings", "embedding", None, True),
    ("--rerank --reranking", "<rerank>", None, True),
    ("--pooling", "<pooling>", one_of("none", "mean", "cls", "last", "rank"), ""),
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
    ("--rope-scaling", "<rope_scaling>", one_of("none", "linear", "yarn"), ""),
    ("--rope-scale", "<rope_scale>", _positive, 0.0),
    ("--yarn-orig-ctx", "yarn_orig_ctx", int, 0),
    ("--yarn-ext-factor", "yarn_ext_factor", float, 0.0),
    ("--yarn-attn-factor", "yarn_attn_factor", float, 0.0),
    ("--yarn-beta-slow", "yarn_beta_slow", float, 0.0),
    ("--yarn-beta-fast", "yarn_beta_fast", float, 0.0),
    ("--numa", "<numa>", one_of("distribute", "isolate", "numactl"), ""),
    ("-ncmoe --n-cpu-moe", "<n_cpu_moe>", _count, 0),
    ("-cmoe --cpu-moe", "<n_cpu_moe>", None, ALL_LAYERS),
    ("--grammar", "<grammar>", str, ""),
    ("-md --model-draft --spec-draft-model", "<draft_model>", str, ""),
    ("--draft --draft-n --draft-max --spec-draft-n-max", "speculative.draft.n_max", _count, 0),
    ("--draft-min --draft-n-min --spec-draft-n-min", "speculative.draft.n_min", _count, 0),
    ("--draft-p-min --spec-draft-p-min", "speculative.draft.p_min", float, 0.0),
    ("--draft-p-split --spec-draft-p-split", "speculative.draft.p_split", float, 0.0),
    ("--spec-type", "<spec_type>", _speculation, ""),
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

FLAGS: Final = flags.table(_ROWS)

_UNSUPPORTED: Final = ("--override-kv",)
"""Flags of llama-server for which the xllamacpp package has no parameter."""


def parse(words: Sequence[str]) -> list[tuple[str, Value]]:
    """Return (target, value) in the order given; raises :class:`~workers.engines.flags.FlagError`."""
    for word in words:
        if word.replace("_", "-") in _UNSUPPORTED:
            raise FlagError(f"{word} is not in the xllamacpp package; another llamacpp_backend has it")
    return flags.parse(words, FLAGS)
