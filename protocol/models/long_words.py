"""Limits how long a text may go on without a place where every tokenizer divides it. Pure.

A tokenizer first splits a text there. llama.cpp does this with ``std::regex`` for many models, which recurses into each
character of a part. So a word of a megabyte overflows its stack: docs/engines/llamacpp.md has what was observed.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from protocol.failures import invalid
from protocol.wire.decoding import DECODE_ERRORS

LONGEST_PART: Final = 524_288
"""Characters above which a part is certainly refused; one of half this length never is."""
MEDIA: Final = frozenset({"image_url", "input_audio", "input_video", "file", "multimodal_data"})
"""Fields beside texts that are not text."""
_BLOCK: Final = LONGEST_PART // 2
_ONE_PART: Final = re.compile(r"[^ \t-\r.,!?]+|[\W_]+")
"""What some tokenizer may take for one part: anything not divided by blanks or ends of sentences, or anything
without letters and numbers. Tokenizers that stop earlier divide more."""


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
            left += [key for key in value if len(key) >= _BLOCK]
        elif isinstance(value, list):
            left += [each for each in value if isinstance(each, str | dict | list)]
        elif isinstance(value, str) and _has_long_part(value):
            raise invalid(
                f"`{shown}` has a text with {_BLOCK} characters in a row without a blank or punctuation, or without a letter or digit; "
                f"the limit is {_BLOCK}: an engine's tokenizer cannot split it",
                shown,
            )


def _has_long_part(text: str) -> bool:
    # A part of twice this length contains one of these blocks, wherever it begins.
    return any(_ONE_PART.fullmatch(text, start, start + _BLOCK) for start in range(0, len(text) - _BLOCK + 1, _BLOCK))
