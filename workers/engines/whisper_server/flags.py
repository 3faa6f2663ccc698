"""The command line and the form fields of our whisper-server, with whisper.cpp's own names if both mean the same.

Targets without angle brackets are attributes of the library's ``whisper_full_params``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from protocol.wire.transcripts import AUTO, RESPONSE_FORMATS, language_code
from workers.engines.flags import FlagError, Row, Value, parse, table

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


_COUNT: Final = _integer_between(-1, 2**31 - 1)
_THRESHOLD: Final = _float_between(-1e6, 1e6)
_BEAMS: Final = _integer_between(-1, 8)
"""whisper.cpp has at most eight decoders."""

_DECODING: Final[list[tuple[str, str, str, Callable[[str], Value]]]] = [
    ("-t --threads", "", "n_threads", _integer_between(1, 512)),
    ("-ot --offset-t", "offset_t", "offset_ms", _integer_between(0, 2**31 - 1)),
    ("-d --duration", "duration", "duration_ms", _integer_between(0, 2**31 - 1)),
    ("-mc --max-context", "max_context", "n_max_text_ctx", _COUNT),
    ("-ml --max-len", "max_len", "max_len", _integer_between(0, 2**31 - 1)),
    ("-bo --best-of", "best_of", "<best_of>", _BEAMS),
    ("-bs --beam-size", "beam_size", "<beam_size>", _BEAMS),
    ("", "max_tokens", "max_tokens", _integer_between(0, 2**31 - 1)),
    ("-ac --audio-ctx", "audio_ctx", "audio_ctx", _integer_between(0, 1500)),
    ("-wt --word-thold", "word_thold", "thold_pt", _THRESHOLD),
    ("-et --entropy-thold", "entropy_thold", "entropy_thold", _THRESHOLD),
    ("-lpt --logprob-thold", "logprob_thold", "logprob_thold", _THRESHOLD),
    ("-nth --no-speech-thold", "no_speech_thold", "no_speech_thold", _THRESHOLD),
    ("-l --language", "language", LANGUAGE, _language),
    ("--prompt", "prompt", "initial_prompt", str),
    ("", "temperature", "temperature", _float_between(0, 1)),
    ("", "temperature_inc", "temperature_inc", _increment),
    ("", "response_format", "<form>", _form),
]
"""Flags, field of a form, target, reader; empty if there is none."""

_SWITCHES: Final[list[tuple[str, str, str]]] = [
    ("-tr --translate", "translate", "translate"),
    ("-sow --split-on-word", "split_on_word", "split_on_word"),
    ("-nf --no-fallback", "", "<no_fallback>"),
    ("-nt --no-timestamps", "no_timestamps", "no_timestamps"),
    ("-dl --detect-language", "detect_language", "<detect_language>"),
    ("-tdrz --tinydiarize", "tinydiarize", "tdrz_enable"),
    ("-sns --suppress-nst", "suppress_nst suppress_non_speech", "suppress_nst"),
    ("--carry-initial-prompt", "carry_initial_prompt", "carry_initial_prompt"),
    ("", "token_timestamps", "token_timestamps"),
    ("", "no_context", "no_context"),
    ("-pp --print-progress", "", "<print_progress>"),
    ("", "stream", "<stream>"),
]

_ROWS: Final[list[Row]] = [
    ("-m --model", "<model>", str, ""),
    ("--host", "<host>", str, ""),
    ("--port", "<port>", _integer_between(0, 65_535), 0),
    ("--convert", "<convert>", None, True),  # asks the original to use ffmpeg; ours needs no permission to read a file
    ("-ng --no-gpu", "<use_gpu>", None, False),
    ("-fa --flash-attn", "<flash_attn>", None, True),
    ("-nfa --no-flash-attn", "<flash_attn>", None, False),
    ("--version", "<version>", None, True),
    *((names, target, read, 0) for names, _, target, read in _DECODING),
    *((names, target, None, True) for names, _, target in _SWITCHES),
]

FLAGS: Final = table(_ROWS)

_FIELDS: Final[dict[str, tuple[str, Callable[[str], Value]]]] = {
    **{field: (target, read) for _, field, target, read in _DECODING if field},
    **{field: (target, _boolean) for _, fields, target in _SWITCHES for field in fields.split()},
}


def parse_command_line(words: Iterable[str]) -> list[tuple[str, Value]]:
    """Return (target, value) of a command line in the order given; raises :class:`FlagError`."""
    return parse(list(words), FLAGS)


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


def version() -> str:
    """Return the version of the wheel in this Python; empty if it is not installed."""
    from importlib import metadata  # noqa: PLC0415 - slow to import, and this module is in every worker

    try:
        return metadata.version("pywhispercpp")
    except metadata.PackageNotFoundError:
        return ""
