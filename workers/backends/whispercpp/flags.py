"""The flags of whisper-server, and the fields of a form with the same meanings. Pure.

Names and meanings are whisper.cpp's own. Flags that are not here are the operator's, and no flag of our own server. Left
to the operator on purpose is what serves or writes files (``--tmp-dir``) and what prints transcripts into the log.

Targets without angle brackets are attributes of the library's ``whisper_full_params``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from protocol.wire.transcripts import AUTO, RESPONSE_FORMATS, language_code
from workers.backends.flag_table import (
    COUNT,
    FILE,
    INTEGER,
    MAX_THREADS,
    NUMBER,
    TEXT,
    WORD,
    Flag,
    FlagError,
    FlagTable,
    Kind,
    Setter,
    Value,
)

PACKAGE: Final = "pywhispercpp"
"""The wheel with the library of our server."""
KEY: Final = "WHISPER_API_KEY"
"""Variable with the key that callers must show; whisper-server itself has none."""
LANGUAGE: Final = "<language>"
"""Target of the requested language, as a code."""
_TRUE: Final = frozenset({"1", "on", "true", "y", "yes"})
_MIN_INCREMENT: Final = 0.05
_FALSE: Final = frozenset({"", "0", "false", "n", "no", "off"})


def _language(text: str) -> str:
    code = language_code(text)
    if not code:
        raise ValueError(f"{text[:40]} (a language such as en or English, or {AUTO})")
    return code


def _boolean(text: str) -> bool:
    reason = text.strip().lower()
    if reason not in _TRUE | _FALSE:
        raise ValueError(f"{text[:40]} (true or false)")
    return reason in _TRUE


def _integer_between(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise ValueError(f"{text[:40]} (a whole number from {least} to {most})")
        return number

    return read


def _float_between(least: float, most: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not least <= number <= most:
            raise ValueError(f"{text[:40]} (a number from {least:g} to {most:g})")
        return number

    return read


def _increment(text: str) -> float:
    number = _float_between(0, 1)(text)
    # Each step to 1 is another attempt at the whole window.
    return number and max(number, _MIN_INCREMENT)


def _form(text: str) -> str:
    if text not in RESPONSE_FORMATS:
        raise ValueError(f"{text[:40]} (one of {', '.join(RESPONSE_FORMATS)})")
    return text


_THREADS: Final = COUNT.up_to(MAX_THREADS).read_by(_integer_between(1, 512))
_COUNT: Final = COUNT.read_by(_integer_between(0, 2**31 - 1))
_LIMIT: Final = INTEGER.read_by(_integer_between(-1, 2**31 - 1))
_THRESHOLD: Final = NUMBER.read_by(_float_between(-1e6, 1e6))
_BEAMS: Final = INTEGER.up_to(8).read_by(_integer_between(-1, 8))
"""``WHISPER_MAX_DECODERS``: above it, whisper-server writes beyond the end of an array."""
_AUDIO_CONTEXT: Final = COUNT.up_to(1_500).read_by(_integer_between(0, 1_500))
"""At most the context that the models were trained with."""

_lemonbus: Final = partial(Flag, setter=Setter.LEMONBUS)
_operators: Final = partial(Flag, setter=Setter.OPERATOR)

_OPTIONS: Final = [
    (Flag("-t --threads", _THREADS, "n_threads", option="threads"), ""),
    (Flag("-ot --offset-t", _COUNT, "offset_ms"), "offset_t"),
    (Flag("-d --duration", _COUNT, "duration_ms"), "duration"),
    (Flag("-mc --max-context", _LIMIT, "n_max_text_ctx"), "max_context"),
    (Flag("-ml --max-len", _COUNT, "max_len"), "max_len"),
    (Flag("-bo --best-of", _BEAMS, "<best_of>"), "best_of"),
    (Flag("-bs --beam-size", _BEAMS, "<beam_size>"), "beam_size"),
    (Flag("", _COUNT, "max_tokens"), "max_tokens"),
    (Flag("-ac --audio-ctx", _AUDIO_CONTEXT, "audio_ctx"), "audio_ctx"),
    (Flag("-wt --word-thold", _THRESHOLD, "thold_pt"), "word_thold"),
    (Flag("-et --entropy-thold", _THRESHOLD, "entropy_thold"), "entropy_thold"),
    (Flag("-lpt --logprob-thold", _THRESHOLD, "logprob_thold"), "logprob_thold"),
    (Flag("-nth --no-speech-thold", _THRESHOLD, "no_speech_thold"), "no_speech_thold"),
    (Flag("-l --language", WORD.read_by(_language), LANGUAGE), "language"),
    (Flag("--prompt", Kind(r"[^\0]{0,4096}"), "initial_prompt"), "prompt"),
    (Flag("", NUMBER.read_by(_float_between(0, 1)), "temperature"), "temperature"),
    (Flag("", NUMBER.read_by(_increment), "temperature_inc"), "temperature_inc"),
    (Flag("", WORD.read_by(_form), "<form>"), "response_format"),
    (Flag("-tr --translate", None, "translate"), "translate"),
    (Flag("-sow --split-on-word", None, "split_on_word"), "split_on_word"),
    (Flag("-nf --no-fallback", None, "<no_fallback>"), ""),
    (Flag("-nt --no-timestamps", None, "no_timestamps"), "no_timestamps"),
    (Flag("-dl --detect-language", None, "<detect_language>"), "detect_language"),
    (Flag("-tdrz --tinydiarize", None, "tdrz_enable"), "tinydiarize"),
    (Flag("-sns --suppress-nst", None, "suppress_nst"), "suppress_nst suppress_non_speech"),
    (Flag("--carry-initial-prompt", None, "carry_initial_prompt"), "carry_initial_prompt"),
    (Flag("", None, "token_timestamps"), "token_timestamps"),
    (Flag("", None, "no_context"), "no_context"),
    (Flag("", None, "<stream>"), "stream"),
]
"""Flag, and the fields of a form with the same meaning. Some have only a flag, or only a field."""

FLAGS: Final = FlagTable(
    _lemonbus("-m --model", FILE, "<model>"),
    _lemonbus("--host", TEXT, "<host>"),
    _lemonbus("--port", COUNT.read_by(_integer_between(0, 65_535)), "<port>"),
    _lemonbus("--public --request-path --inference-path", TEXT),
    *(flag for flag, _ in _OPTIONS),
    Flag("--convert", None, "<convert>"),  # asks the original to use ffmpeg; ours needs no permission to read a file
    Flag("-ng --no-gpu", None, "<use_gpu>", bare=False),
    Flag("-fa --flash-attn", None, "<flash_attn>"),
    Flag("-nfa --no-flash-attn", None, "<flash_attn>", bare=False),
    Flag("-p --processors", COUNT.up_to(MAX_THREADS)),
    Flag("-on --offset-n", INTEGER),
    Flag("-dtw --dtw -dev --device", WORD),
    Flag("-di --diarize -nc --no-context -nlp --no-language-probabilities --vad"),
    Flag("-vm --vad-model", FILE),
    Flag("-vt --vad-threshold -vmsd --vad-max-speech-duration-s -vo --vad-samples-overlap", NUMBER),
    Flag("-vspd --vad-min-speech-duration-ms -vsd --vad-min-silence-duration-ms -vp --vad-speech-pad-ms", COUNT),
    _operators("-pp --print-progress", None, "<print_progress>"),
    _operators("--version", None, "<version>"),
)

_FIELDS: Final[dict[str, tuple[str, Callable[[str], Value]]]] = {
    field: (flag.target, flag.kind.read if flag.kind else _boolean)
    for flag, fields in _OPTIONS
    for field in fields.split()
}


def parse_form_fields(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return target → value for the fields of a form. Unknown fields are ignored. Raises :class:`FlagError`."""
    found: dict[str, Any] = {}
    for name, text in fields.items():
        if name not in _FIELDS:
            continue
        target, reader = _FIELDS[name]
        try:
            found[target] = reader(text)
        except ValueError as problem:
            raise FlagError(f"{name} cannot be {problem.args[0]}") from None
    return found
