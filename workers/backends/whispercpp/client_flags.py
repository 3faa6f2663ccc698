"""Flags of whisper-server that a client may send with a load. Pure.

Left out on purpose: what serves or writes files (``--public``, ``--tmp-dir``) and what prints transcripts into the log.
"""

from __future__ import annotations

from typing import Final

from protocol.models.recipes import ClientFlag
from workers.backends.arguments import MAX_THREADS
from workers.backends.client_arguments import COUNT, INTEGER, NUMBER, WORD, file_flags, switches, valued

_AUDIO_CONTEXT: Final = 1_500
"""The context that the models were trained with."""
_DECODERS: Final = 8
"""``WHISPER_MAX_DECODERS``: above it, the engine writes beyond the end of an array."""

CLIENT_FLAGS: Final[list[ClientFlag]] = [
    *valued("-t --threads -p --processors", COUNT, most=MAX_THREADS),
    *valued("-ot --offset-t -d --duration -ml --max-len", COUNT),
    *valued("-ac --audio-ctx", COUNT, most=_AUDIO_CONTEXT),
    *valued("-bo --best-of -bs --beam-size", INTEGER, most=_DECODERS),
    *valued("-mc --max-context -on --offset-n", INTEGER),
    *valued("-wt --word-thold -et --entropy-thold -lpt --logprob-thold -nth --no-speech-thold", NUMBER),
    *valued("-l --language", WORD),
    *valued("--prompt", r"[^\0]{0,4096}"),
    *valued("-dtw --dtw -dev --device", WORD),
    *switches("--convert -ng --no-gpu -fa --flash-attn -nfa --no-flash-attn -tr --translate -sow --split-on-word"),
    *switches("-nf --no-fallback -nt --no-timestamps -dl --detect-language -di --diarize -tdrz --tinydiarize"),
    *switches("-sns --suppress-nst -nc --no-context -nlp --no-language-probabilities --carry-initial-prompt --vad"),
    *file_flags("-vm --vad-model"),
    *valued("-vt --vad-threshold -vmsd --vad-max-speech-duration-s -vo --vad-samples-overlap", NUMBER),
    *valued("-vspd --vad-min-speech-duration-ms -vsd --vad-min-silence-duration-ms -vp --vad-speech-pad-ms", COUNT),
]
