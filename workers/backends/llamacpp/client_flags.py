"""Flags of llama-server that a client may send with a load. Pure.

Written from llama.cpp's list of arguments (build b11549). Left out on purpose: everything that opens a port or a
connection (``--rpc``, ``--mcp-…``), reads or writes files on its own (``--log-file``, ``--media-path``,
``--slot-save-path``, ``--lookup-cache-…``), runs tools (``--tools``), changes the log (``-v``), or takes a chat
template as text: a template is a program, so a client may only name one that is built in.
"""

from __future__ import annotations

from typing import Final

from protocol.models.recipes import ClientFlag, FlagFiles
from workers.backends.arguments import MAX_THREADS
from workers.backends.client_arguments import (
    COUNT,
    INTEGER,
    NUMBER,
    SWITCH,
    WORD,
    file_flags,
    switches,
    valued,
)

_CACHE_TYPE: Final = "f32|f16|bf16|q8_0|q4_0|q4_1|iq4_nl|q5_0|q5_1"
_BATCH: Final = 65_536
"""Tokens that are evaluated together. An embedding model needs as many as the longest input has."""
_MEBIBYTES: Final = r"\d{1,5}"
"""Memory for caches. Only the administrator may give -1, which means no limit."""
_DRAFT: Final = 1_024
"""Tokens that a draft model may be ahead."""
_CONTEXT: Final = 2**24
_LAYERS: Final = 9_999
_LIST: Final = r"[\w.,;:=/+*|()\[\]\\^$?-]{1,1024}"
_TEXT: Final = r"[^\0]{1,16384}"

SPECULATIVE: Final[list[ClientFlag]] = [
    *file_flags("-md --model-draft --spec-draft-model"),
    *valued("--draft --draft-n --draft-max --spec-draft-n-max", COUNT, most=_DRAFT),
    *valued("--draft-min --draft-n-min --spec-draft-n-min", COUNT, most=_DRAFT),
    *valued("--draft-p-min --spec-draft-p-min --draft-p-split --spec-draft-p-split", NUMBER),
    *valued("-ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-ngl", WORD),
    *valued("-devd --device-draft --spec-draft-device", _LIST),
    *valued("-ctkd --cache-type-k-draft -ctvd --cache-type-v-draft", _CACHE_TYPE),
    *valued("--spec-type", r"[a-z0-9,-]{1,128}"),
    *valued("--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits", COUNT, most=_DRAFT),
]

CLIENT_FLAGS: Final[list[ClientFlag]] = [
    # Slots and memory.
    *valued("-np --parallel", COUNT),
    *valued("-b --batch-size -ub --ubatch-size", COUNT, most=_BATCH),
    *valued("-cram --cache-ram", _MEBIBYTES),
    *valued("-ctxcp --ctx-checkpoints --swa-checkpoints", r"\d{1,3}"),
    *valued("-ctk --cache-type-k -ctv --cache-type-v", _CACHE_TYPE),
    *switches("-kvu --kv-unified -no-kvu --no-kv-unified -nkvo --no-kv-offload --kv-offload"),
    *switches("--cache-idle-slots --no-cache-idle-slots --cache-prompt --no-cache-prompt"),
    *switches("--context-shift --no-context-shift --swa-full"),
    *switches("--mmap --no-mmap --mlock --check-tensors -nr --no-repack --no-host --warmup --no-warmup"),
    *valued("--cache-reuse --keep", COUNT, most=_CONTEXT),
    *valued("-sps --slot-prompt-similarity", NUMBER),
    # Threads and devices.
    *valued("-t --threads -tb --threads-batch --threads-http", INTEGER, most=MAX_THREADS),
    *valued("--prio --prio-batch --poll --poll-batch", INTEGER, most=100),
    *valued("--numa", "distribute|isolate|numactl"),
    *valued("-dev --device -ts --tensor-split -ot --override-tensor", _LIST),
    *valued("-sm --split-mode", "none|layer|row|tensor"),
    *valued("-mg --main-gpu -ncmoe --n-cpu-moe", COUNT, most=_LAYERS),
    *switches("-cmoe --cpu-moe --no-op-offload --op-offload"),
    *valued("-fit --fit -fa --flash-attn", SWITCH),
    *switches("-cb --cont-batching -nocb --no-cont-batching"),
    # The model.
    *valued("--override-kv", r"[\w.-]{1,128}=(int|float|bool|str):[^\0]{0,256}"),
    *valued("--rope-scaling", "none|linear|yarn"),
    *valued("--rope-scale --rope-freq-base --rope-freq-scale", NUMBER),
    *valued("--yarn-orig-ctx", COUNT, most=_CONTEXT),
    *valued("--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast", NUMBER),
    *valued("--pooling", "none|mean|cls|last|rank"),
    *valued("--embd-normalize", INTEGER),
    *file_flags("--lora", FlagFiles.SEVERAL),
    *file_flags("--lora-scaled", FlagFiles.SCALED),
    *switches("--lora-init-without-apply"),
    *valued("--image-min-tokens --image-max-tokens", COUNT, most=_CONTEXT),
    *switches("--no-mmproj-offload --mmproj-offload"),
    # Templates and answers.
    *valued("--chat-template", r"[\w.-]{1,64}"),
    *file_flags("--chat-template-file"),
    *valued("--chat-template-kwargs", _TEXT),
    *valued("--reasoning-format", "none|auto|deepseek|deepseek-legacy"),
    *valued("--reasoning-budget", INTEGER),
    *switches("--prefill-assistant --no-prefill-assistant"),
    *valued("--grammar -j --json-schema", _TEXT),
    *file_flags("--grammar-file -jf --json-schema-file"),
    # Sampling defaults.
    *valued("-n --predict --n-predict -s --seed --top-k --repeat-last-n --mirostat", INTEGER),
    *valued("--temp --temperature --top-p --min-p --typical --top-nsigma --xtc-probability --xtc-threshold", NUMBER),
    *valued("--repeat-penalty --presence-penalty --frequency-penalty", NUMBER),
    *valued("--dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n", NUMBER),
    *valued("--dynatemp-range --dynatemp-exp --mirostat-lr --mirostat-ent", NUMBER),
    *valued("--samplers --sampler-seq --sampling-seq", r"[\w;]{1,256}"),
    *switches("--ignore-eos"),
    # The server.
    *valued("-to --timeout --sleep-idle-seconds --sse-ping-interval", INTEGER),
    *switches("--ui --webui --no-ui --no-webui --offline --no-perf --perf"),
    *SPECULATIVE,
]
