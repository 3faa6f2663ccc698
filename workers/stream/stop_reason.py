"""Says in an engine's finish chunk which stop sequence ended the answer, where llama-server says it in ``__verbose``. Pure.

OpenAI's form has no field for it; vLLM's is ``stop_reason`` in the choice, null if no sequence was hit. The rest of ``__verbose``,
the whole prompt among it, is removed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from workers.stream.sse_filter import MAX_EVENT_BYTES

_END: Final = b"\n\n"
_VERBOSE: Final = b'"__verbose":{'
"""A quote inside a JSON string has a backslash before it, so a text cannot look like this."""


class _Verbose(msgspec.Struct):
    stopping_word: str = ""


_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_verbose: Final = msgspec.json.Decoder(_Verbose).decode
_choices: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


class StopReasonTranslator:
    """Translates one stream."""

    def __init__(self) -> None:
        """Begin a stream."""
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the engine; return the events that they complete. Raises ``DECODE_ERRORS`` or ValueError for a broken one."""
        data = self._rest + data
        end = data.rfind(_END) + len(_END) if _END in data else 0
        data, self._rest = data[:end], data[end:]
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError("the engine sent an event without an end")
        if _VERBOSE not in data:
            return data
        return b"".join(_translated(event) + _END for event in data.split(_END)[:-1])


def _translated(event: bytes) -> bytes:
    if _VERBOSE not in event:
        return event
    fields = _fields(event.removeprefix(b"data:"))
    word = _verbose(fields.pop("__verbose")).stopping_word
    choices = _choices(fields["choices"])
    if choices:
        choices[0]["stop_reason"] = msgspec.Raw(msgspec.json.encode(word or None))
        fields["choices"] = msgspec.Raw(msgspec.json.encode(choices))
    return b"data: " + msgspec.json.encode(fields)
