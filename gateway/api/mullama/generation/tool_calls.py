"""Collects the tool calls of an answer from their pieces, and writes their arguments as objects. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from protocol.wire.decoding import DECODE_ERRORS
from protocol.wire.openai_chunks import ToolCallDelta

_CUT_OFF: Final = "length"


class ToolCalls:
    """The calls of one answer."""

    def __init__(self) -> None:
        """Begin without calls."""
        self._calls: dict[int, _CollectedCall] = {}

    def add(self, deltas: Iterable[ToolCallDelta], *, whole: bool = False) -> None:
        """Add pieces of calls. ``whole``: each piece is a complete call, without an index."""
        for position, delta in enumerate(deltas):
            call = self._calls.setdefault(position if whole else delta.index, _CollectedCall())
            call.id = call.id or delta.id
            call.name += delta.function.name
            call.arguments += delta.function.arguments

    def take(self, finish_reason: str) -> list[dict[str, Any]]:
        """Return and remove the calls of an answer that has ended; raises ``DECODE_ERRORS`` for a malformed one.

        If the answer was cut off within a call, that call is left out.
        """
        calls, self._calls = self._calls, {}
        written = []
        for index, call in sorted(calls.items()):
            try:
                arguments = _decode_arguments(call.arguments or "{}")
            except DECODE_ERRORS:
                if finish_reason == _CUT_OFF:
                    continue
                raise
            function = {"index": index, "name": call.name, "arguments": arguments}
            written.append({**({"id": call.id} if call.id else {}), "function": function})
        return written


class _CollectedCall(msgspec.Struct):
    id: str = ""
    name: str = ""
    arguments: str = ""


_decode_arguments: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
