"""Adds to an engine's finish chunk which stop sequence ended the answer, which llama-server says in ``__verbose``.

Pure.

OpenAI's form has no field for it; vLLM's is ``stop_reason`` in the choice, null if no sequence was hit. The rest of
``__verbose``, which includes the whole prompt, is removed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from workers.stream.sse_parser import EventTranslator

_VERBOSE: Final = b'"__verbose":{'


class _Verbose(msgspec.Struct):
    stopping_word: str = ""


_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_verbose: Final = msgspec.json.Decoder(_Verbose).decode
_choices: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


class StopReasonTranslator(EventTranslator):
    """Translates one stream."""

    def __init__(self) -> None:
        """Begin a stream."""
        super().__init__(_VERBOSE, _with_stop_reason)


def _with_stop_reason(payload: bytes) -> bytes:
    fields = _fields(payload)
    word = _verbose(fields.pop("__verbose")).stopping_word
    choices = _choices(fields["choices"])
    if choices:
        choices[0]["stop_reason"] = msgspec.Raw(msgspec.json.encode(word or None))
        fields["choices"] = msgspec.Raw(msgspec.json.encode(choices))
    return msgspec.json.encode(fields)
