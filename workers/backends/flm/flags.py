"""The flags of ``flm serve``: their names and values, who may set each, and the load option behind it. Pure."""

from __future__ import annotations

from functools import partial
from typing import Final

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
