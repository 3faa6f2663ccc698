"""The flags of llama-server: their names and values, who may set each, and the load option behind it. Pure.

Written from llama.cpp's list of arguments (build b11549). Flags that are not here are the operator's, and no flag of our
own server. Left to the operator on purpose is everything that opens a port or a connection (``--rpc``, ``--mcp-…``),
reads or writes files on its own (``--log-file``, ``--media-path``, ``--slot-save-path``, ``--lookup-cache-…``), runs
tools (``--tools``), changes the log (``-v``), or takes a chat template as text: a template is a program, so a client may
only name one that is built in.

Targets are dotted attributes of llama.cpp's parameters, or names in angle brackets for anything more complex
(``workers/engine_servers/llama_server/server.py``). The ``xllamacpp`` package has no parameter for flags without a target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from protocol.models.recipes import MAX_CTX_SIZE
from workers.backends.flag_table import (
    COUNT,
    FILE,
    FILES,
    INTEGER,
    MAX_THREADS,
    NUMBER,
    SCALED_FILES,
    TEXT,
    WORD,
    Flag,
    FlagError,
    FlagTable,
    Kind,
    Setter,
    Value,
    name_of,
    one_of,
)
from workers.backends.package_version import UNKNOWN, package_version

ALL_LAYERS: Final = 1000
"""More layers than any model has."""
MAX_SLOTS: Final = 256
_MAX_BATCH: Final = 65_536
"""Tokens that are evaluated together. An embedding model needs as many as the longest input has."""
_MAX_DRAFT: Final = 1_024
"""Tokens that a draft model may be ahead."""
_MAX_LAYERS: Final = 9_999
_TRUE: Final = frozenset({"on", "enabled", "true", "1", "yes"})
_FALSE: Final = frozenset({"off", "disabled", "false", "0", "no"})
SPECULATION_TYPES: Final = (
    *("none", "draft-simple", "draft-eagle3", "draft-mtp"),
    *("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"),
)


def _on_off_auto(text: str) -> Value:
    if text.lower() in _TRUE:
        return "enabled"
    if text.lower() in _FALSE:
        return "disabled"
    return one_of("auto").read(text)


def _natural(text: str) -> int:
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
        one_of(*SPECULATION_TYPES).read(name)
    return text


_SWITCH: Final = Kind("on|off|auto|enabled|disabled|true|false|yes|no|1|0", _on_off_auto)
_CACHE_TYPE: Final = one_of("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_NATURAL: Final = COUNT.read_by(_natural)
_LIST: Final = Kind(r"[\w.,;:=/+*|()\[\]\\^$?-]{1,1024}")
_MEBIBYTES: Final = Kind(r"\d{1,5}", int)
"""Memory for caches. Only the administrator may give -1, which means no limit."""
_THREADS: Final = INTEGER.up_to(MAX_THREADS)

_operators: Final = partial(Flag, setter=Setter.OPERATOR)
_lemonbus: Final = partial(Flag, setter=Setter.LEMONBUS)
_not_in_cache_key: Final = partial(Flag, cache_key=False)
"""A flag that changes neither what the model computes from a prompt nor how it is stored: kept prompt caches stay valid."""

FLAGS: Final = FlagTable(
    # What lemonbus sets.
    _lemonbus("-m --model", FILE, "model.path", same_as="-m"),
    _lemonbus("-mu --model-url -dr --docker-repo", TEXT, same_as="-m"),
    _lemonbus("--models-dir --models-preset --models-max --models-autoload", TEXT, same_as="-m"),
    _lemonbus("-hf -hfr --hf-repo -hff --hf-file -hft --hf-token", TEXT, same_as="-hf"),
    _lemonbus("-hfv -hfrv --hf-repo-v -hffv --hf-file-v", TEXT, same_as="-hf"),
    _lemonbus("-c --ctx-size", INTEGER, "n_ctx", same_as="--ctx-size", option="ctx_size"),
    _lemonbus("-ngl --gpu-layers --n-gpu-layers", INTEGER, "n_gpu_layers", same_as="-ngl", option="gpu_layers"),
    _lemonbus("--jinja", None, "use_jinja", same_as="--jinja"),
    _lemonbus("--no-jinja", None, "use_jinja", bare=False, same_as="--jinja"),
    _lemonbus("-mm --mmproj", FILE, "mmproj.path", same_as="--mmproj"),
    _lemonbus("-mmu --mmproj-url", TEXT, same_as="--mmproj"),
    _lemonbus("--mmproj-auto --no-mmproj --no-mmproj-auto", same_as="--mmproj"),
    _lemonbus("--embedding --embeddings", None, "embedding", same_as="--embeddings"),
    _lemonbus("--rerank --reranking", None, "<rerank>", same_as="--reranking"),
    _lemonbus("--host", TEXT, "<host>"),
    _lemonbus("--port", INTEGER, "port"),
    _lemonbus("--reuse-port", None, "reuse_port"),
    _lemonbus("--no-slots", None, "endpoint_slots", bare=False),
    _lemonbus("--api-prefix --path", TEXT),
    _lemonbus("-a --alias", TEXT, "<alias>"),
    _lemonbus("--api-key --api-key-file --ssl-key-file --ssl-cert-file", TEXT),
    # Slots and memory.
    Flag("-np --parallel", COUNT.up_to(MAX_SLOTS), "n_parallel", option="slots"),
    Flag("-b --batch-size", COUNT.up_to(_MAX_BATCH), "n_batch"),
    Flag("-ub --ubatch-size", COUNT.up_to(_MAX_BATCH), "n_ubatch"),
    _not_in_cache_key("-cram --cache-ram", _MEBIBYTES, "cache_ram_mib"),
    Flag("-ctxcp --ctx-checkpoints --swa-checkpoints", Kind(r"\d{1,3}", int), "n_ctx_checkpoints"),
    Flag("-ctk --cache-type-k", _CACHE_TYPE, "<cache_type_k>"),
    Flag("-ctv --cache-type-v", _CACHE_TYPE, "<cache_type_v>"),
    Flag("-kvu --kv-unified", None, "kv_unified"),
    Flag("-no-kvu --no-kv-unified", None, "kv_unified", bare=False),
    Flag("-nkvo --no-kv-offload", None, "no_kv_offload"),
    Flag("--kv-offload"),
    Flag("--cache-idle-slots", None, "cache_idle_slots"),
    Flag("--no-cache-idle-slots", None, "cache_idle_slots", bare=False),
    Flag("--cache-prompt", None, "cache_prompt"),
    Flag("--no-cache-prompt", None, "cache_prompt", bare=False),
    _not_in_cache_key("--cache-reuse", COUNT.up_to(MAX_CTX_SIZE), "n_cache_reuse"),
    Flag("--keep", COUNT.up_to(MAX_CTX_SIZE), "n_keep"),
    Flag("--context-shift", None, "ctx_shift"),
    Flag("--no-context-shift", None, "ctx_shift", bare=False),
    Flag("--swa-full", None, "swa_full"),
    Flag("--mmap", None, "<mmap>"),
    Flag("--no-mmap", None, "<mmap>", bare=False),
    Flag("--mlock", None, "<mlock>"),
    Flag("--check-tensors", None, "check_tensors"),
    Flag("-nr --no-repack", None, "no_extra_bufts"),
    Flag("--no-host"),
    Flag("--warmup", None, "warmup"),
    Flag("--no-warmup", None, "warmup", bare=False),
    _not_in_cache_key("-sps --slot-prompt-similarity", NUMBER, "slot_prompt_similarity"),
    _operators("--slot-save-path", TEXT, "<slot_save_path>", cache_key=False),
    # Threads and devices.
    _not_in_cache_key("-t --threads", _THREADS, "<threads>", option="threads"),
    _not_in_cache_key("-tb --threads-batch", _THREADS, "<threads_batch>"),
    _not_in_cache_key("--threads-http", _THREADS, "n_threads_http"),
    _not_in_cache_key("--prio --prio-batch --poll --poll-batch", INTEGER.up_to(100)),
    Flag("--numa", one_of("distribute", "isolate", "numactl"), "<numa>"),
    Flag("-dev --device", _LIST),
    Flag("-ts --tensor-split", _LIST),
    Flag("-ot --override-tensor", _LIST),
    Flag("-sm --split-mode", one_of("none", "layer", "row", "tensor")),
    Flag("-mg --main-gpu", COUNT.up_to(_MAX_LAYERS)),
    Flag("-ncmoe --n-cpu-moe", _NATURAL.up_to(_MAX_LAYERS), "<n_cpu_moe>"),
    Flag("-cmoe --cpu-moe", None, "<n_cpu_moe>", bare=ALL_LAYERS),
    Flag("--no-op-offload --op-offload"),
    Flag("-fa --flash-attn", _SWITCH, "<flash_attn>"),
    Flag("-fit --fit", _SWITCH),
    Flag("-cb --cont-batching", None, "cont_batching"),
    Flag("-nocb --no-cont-batching", None, "cont_batching", bare=False),
    # The model.
    Flag("--override-kv", Kind(r"[\w.-]{1,128}=(int|float|bool|str):[^\0]{0,256}")),
    Flag("--rope-scaling", one_of("none", "linear", "yarn"), "<rope_scaling>"),
    Flag("--rope-scale", NUMBER.read_by(_positive), "<rope_scale>"),
    Flag("--rope-freq-base", NUMBER, "rope_freq_base"),
    Flag("--rope-freq-scale", NUMBER, "rope_freq_scale"),
    Flag("--yarn-orig-ctx", COUNT.up_to(MAX_CTX_SIZE), "yarn_orig_ctx"),
    Flag("--yarn-ext-factor", NUMBER, "yarn_ext_factor"),
    Flag("--yarn-attn-factor", NUMBER, "yarn_attn_factor"),
    Flag("--yarn-beta-slow", NUMBER, "yarn_beta_slow"),
    Flag("--yarn-beta-fast", NUMBER, "yarn_beta_fast"),
    Flag("--pooling", one_of("none", "mean", "cls", "last", "rank"), "<pooling>"),
    Flag("--embd-normalize", INTEGER, "embd_normalize"),
    Flag("--lora", FILES, "<lora>"),
    Flag("--lora-scaled", SCALED_FILES, "<lora_scaled>"),
    Flag("--lora-init-without-apply", None, "lora_init_without_apply"),
    Flag("--image-min-tokens --image-max-tokens", COUNT.up_to(MAX_CTX_SIZE)),
    Flag("--mmproj-offload"),
    Flag("--no-mmproj-offload"),
    # Templates and answers.
    _not_in_cache_key("--chat-template", Kind(r"[\w.-]{1,64}"), "chat_template"),
    _not_in_cache_key("--chat-template-file", FILE, "<chat_template_file>"),
    _not_in_cache_key("--chat-template-kwargs", TEXT),
    _not_in_cache_key(
        "--reasoning-format", one_of("none", "auto", "deepseek", "deepseek-legacy"), "<reasoning_format>"
    ),
    _not_in_cache_key("--reasoning-budget", INTEGER),
    Flag("--prefill-assistant --no-prefill-assistant"),
    Flag("--grammar", TEXT, "<grammar>"),
    Flag("-j --json-schema", TEXT),
    Flag("--grammar-file -jf --json-schema-file", FILE),
    # Sampling defaults.
    _not_in_cache_key("-n --predict --n-predict", INTEGER, "n_predict"),
    _not_in_cache_key("-s --seed", INTEGER, "sampling.seed"),
    _not_in_cache_key("--temp --temperature", NUMBER, "sampling.temp"),
    _not_in_cache_key("--top-k", INTEGER, "sampling.top_k"),
    _not_in_cache_key("--top-p", NUMBER, "sampling.top_p"),
    _not_in_cache_key("--min-p", NUMBER, "sampling.min_p"),
    _not_in_cache_key("--repeat-penalty", NUMBER, "sampling.penalty_repeat"),
    _not_in_cache_key("--presence-penalty", NUMBER, "sampling.penalty_present"),
    _not_in_cache_key("--frequency-penalty", NUMBER, "sampling.penalty_freq"),
    Flag("--repeat-last-n --mirostat", INTEGER),
    Flag("--typical --top-nsigma --xtc-probability --xtc-threshold", NUMBER),
    Flag("--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n", NUMBER),
    Flag("--dynatemp-range --dynatemp-exp --mirostat-lr --mirostat-ent", NUMBER),
    Flag("--samplers --sampler-seq --sampling-seq", Kind(r"[\w;]{1,256}")),
    Flag("--ignore-eos"),
    # A draft model, which guesses tokens.
    Flag("-md --model-draft --spec-draft-model", FILE, "<draft_model>"),
    Flag("--draft --draft-n --draft-max --spec-draft-n-max", _NATURAL.up_to(_MAX_DRAFT), "speculative.draft.n_max"),
    Flag("--draft-min --draft-n-min --spec-draft-n-min", _NATURAL.up_to(_MAX_DRAFT), "speculative.draft.n_min"),
    Flag("--draft-p-min --spec-draft-p-min", NUMBER, "speculative.draft.p_min"),
    Flag("--draft-p-split --spec-draft-p-split", NUMBER, "speculative.draft.p_split"),
    Flag("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl", WORD),
    Flag("-devd --device-draft --spec-draft-device", _LIST),
    Flag("-ctkd --cache-type-k-draft -ctvd --cache-type-v-draft", _CACHE_TYPE),
    Flag("--spec-type", Kind(r"[a-z0-9,-]{1,128}", _speculation), "<spec_type>"),
    Flag("--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits", COUNT.up_to(_MAX_DRAFT)),
    # The server.
    _not_in_cache_key("-to --timeout", INTEGER, "<timeout>"),
    _not_in_cache_key("--sleep-idle-seconds", INTEGER, "sleep_idle_seconds"),
    _not_in_cache_key("--sse-ping-interval", INTEGER, "sse_ping_interval"),
    Flag("--ui --webui", None, "ui"),
    Flag("--no-ui --no-webui", None, "ui", bare=False),
    Flag("--offline", None, "offline"),
    Flag("--no-perf --perf"),
    _operators("--metrics", None, "endpoint_metrics"),
    _operators("--props", None, "endpoint_props"),
    _operators("--slots", None, "endpoint_slots"),
    _operators("-lv --verbosity --log-verbosity", INTEGER, "verbosity", cache_key=False),
    _operators("-v --verbose --log-verbose", None, "verbosity", bare=2**31 - 1),
    _operators("--version", None, "<version>"),
)


def parse(words: Sequence[str]) -> list[tuple[str, Value]]:
    """Return (target, value) in the order given; raises :class:`~workers.backends.flag_table.FlagError`."""
    for word in words:
        flag = FLAGS.find(word)
        if flag is not None and not flag.target:
            raise FlagError(f"{name_of(word)} is not in the xllamacpp package; another llamacpp_backend has it")
    return FLAGS.parse(words)


def version() -> str:
    """Return llama.cpp's build (``b11549``), which only the version of the xllamacpp wheel tells; empty without the wheel."""
    wheel = package_version("xllamacpp")
    return f"b{wheel.rpartition('.')[2]}" if wheel not in ("", UNKNOWN) else ""
