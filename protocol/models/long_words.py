"""Limits how long a text may go on without a change between words, digits, white space and punctuation. Pure.

A tokenizer splits a text there first. llama.cpp does so with ``std::regex`` for many models. It recurses into each
character of a part, so that a word of a megabyte overflows its stack: docs/engines/llamacpp.md says what was seen.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from protocol.failures import invalid
from protocol.wire.decoding import DECODE_ERRORS

LONGEST_PART: Final = 524_288
"""Characters after which a part is surely refused; one of half as many never is."""
MEDIA: Final = frozenset({"image_url", "input_audio", "input_video", "file", "multimodal_data"})
"""Fields beside texts that are not text."""
_BLOCK: Final = LONGEST_PART // 2
_ONE_PART: Final = re.compile(r"[^\d\s!-/:-@\[-`{-~]+|\d+|\s+|(?:[^\w\s]|_)+")
"""Letters and their marks, digits, white space, or punctuation: each may be one part for some tokenizer."""


def check_words(shown: str, raw: msgspec.Raw) -> None:
    """Raise ``invalid_request`` if a text in ``raw`` has a part that is too long. ``shown``: the name of the field."""
    if memoryview(raw).nbytes < LONGEST_PART:
        return
    try:
        left: list[Any] = [msgspec.json.decode(raw)]
    except DECODE_ERRORS:
        return  # left to its reader
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [each for key, each in value.items() if key not in MEDIA]
        elif isinstance(value, list):
            left += [each for each in value if isinstance(each, str | dict | list)]
        elif isinstance(value, str) and _has_long_part(value):
            raise invalid(
                f"`{shown}` has a text with more than {_BLOCK} letters, digits, blanks or punctuation marks in a row; the limit is "
                f"{_BLOCK}: an engine's tokenizer cannot split it",
                shown,
            )


def _has_long_part(text: str) -> bool:
    # A part of twice this length has one of these blocks in it, wherever it begins.
    return any(_ONE_PART.fullmatch(text, start, start + _BLOCK) for start in range(0, len(text) - _BLOCK + 1, _BLOCK))
