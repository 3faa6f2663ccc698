"""A streamed chat completion as the events of Anthropic's API. Pure.

Events come in the order that the ``anthropic`` package demands: ``message_start``, then block after block, each from
its start to its stop, then ``message_delta`` with the reason and the usage, and ``message_stop``. The number of prompt
tokens is known only at the end, so ``message_start`` says 0 and ``message_delta`` has the totals.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.anthropic.errors import error_event
from gateway.api.anthropic.message_answer import message_id, stop_fields, tool_use_id, usage_fields
from gateway.api.common import server_sent_events as sse
from gateway.api.common.inference.stream_writer import ChunkWriter
from protocol.failures import Failure
from protocol.wire.openai_chunks import ChoiceDelta, Chunk, ToolCallDelta, Usage, read_usage

_DELTA: Final = (
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":%b}}\n\n'
)
"""There is one for each token, so it is not encoded as a whole."""
_TEXT, _THINKING, _TOOL_USE = "text", "thinking", "tool_use"
_encode: Final = msgspec.json.Encoder().encode


def event(kind: str, **fields: Any) -> bytes:
    """Return one server-sent event."""
    return sse.event(kind, {"type": kind, **fields})


class MessageEventWriter(ChunkWriter):
    """Writes one message. At most one block is open at a time."""

    media_type = sse.MEDIA_TYPE

    def __init__(self, model: str, max_tokens: int, *, one_call: bool = False) -> None:
        """Write a message of ``model`` (empty: as the engine's chunks name it) with at most ``max_tokens``.

        ``one_call``: drop the calls after the first one. Some engines make more although they were told not to.
        """
        self._model = model
        self._max_tokens = max_tokens
        self._one_call = one_call
        self._left_out = False
        """Whether there was more than one call."""
        self._chat_id = ""
        self._started = False
        self._block = ""
        """The type of the open block, empty if none is open."""
        self._index = -1
        """The index of the last block that was started."""
        self._call = -1
        """The index of the last call that was started."""
        self._finish_reason = ""
        self._stop_sequence: str | None = None
        self._usage: Usage | None = None

    def chunk(self, chunk: Chunk) -> bytes:
        """Return the events for a chunk."""
        written = b"" if self._started else self._start(chunk)
        self._usage = read_usage(chunk) or self._usage
        for choice in chunk.choices:
            written += self._choice(choice)
        return written

    def text(self, text: str) -> bytes:
        """Return the event for one more piece of the open text."""
        return self._delta(b"text_delta", b"text", text) if self._block == _TEXT else b""

    def end(self) -> bytes:
        """Return the end of a message that was generated to its end."""
        used = usage_fields(self._usage)
        finish_reason = "tool_calls" if self._left_out else self._finish_reason
        delta = stop_fields(finish_reason, self._stop_sequence, used["output_tokens"], self._max_tokens)
        started = b"" if self._started else self._start(Chunk())
        return started + self._stop_block() + event("message_delta", delta=delta, usage=used) + event("message_stop")

    def error(self, failure: Failure, label: str) -> bytes:
        """Return the event with the error; no ``message_stop`` follows it."""
        return error_event(failure, label)

    def ping(self) -> bytes:
        """Return a ``ping``, or a comment while there is no message."""
        return event("ping") if self._started else sse.PING

    def _start(self, chunk: Chunk) -> bytes:
        self._started = True
        self._chat_id = chunk.id
        message: dict[str, Any] = {
            "id": message_id(chunk.id),
            "type": "message",
            "role": "assistant",
            "model": chunk.model or self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage_fields(None),
        }
        return event("message_start", message=message)

    def _choice(self, choice: ChoiceDelta) -> bytes:
        self._finish_reason = choice.finish_reason or self._finish_reason
        self._stop_sequence = choice.stop_reason or self._stop_sequence
        delta = choice.delta
        if delta is None:
            return b""
        written = b""
        if delta.reasoning_content:
            written += self._open(_THINKING, thinking="", signature="")
            written += self._delta(b"thinking_delta", b"thinking", delta.reasoning_content)
        if delta.content:
            written += self._open(_TEXT, text="") + self._delta(b"text_delta", b"text", delta.content)
        for call in delta.tool_calls:
            written += self._tool_call(call)
        return written

    def _tool_call(self, call: ToolCallDelta) -> bytes:
        if self._one_call and call.index > self._call >= 0:
            self._left_out = True
            return b""
        written = b""
        if self._block != _TOOL_USE or call.index != self._call:
            if call.index <= self._call:
                # Its block was stopped, and no client would accept more of it.
                raise msgspec.ValidationError(f"more of tool call {call.index} after another block had begun")
            self._call = call.index
            call_id = tool_use_id(call.id, self._chat_id, call.index)
            written = self._stop_block()
            written += self._open(_TOOL_USE, id=call_id, name=call.function.name, input={})
        if call.function.arguments:
            written += self._delta(b"input_json_delta", b"partial_json", call.function.arguments)
        return written

    def _open(self, block: str, **fields: Any) -> bytes:
        """Return the start of a block, after the stop of the previous one; nothing if such a block is already open."""
        if self._block == block:
            return b""
        stopped = self._stop_block()
        self._block = block
        self._index += 1
        return stopped + event("content_block_start", index=self._index, content_block={"type": block, **fields})

    def _delta(self, kind: bytes, field: bytes, text: str) -> bytes:
        return _DELTA % (self._index, kind, field, _encode(text))

    def _stop_block(self) -> bytes:
        if not self._block:
            return b""
        # Anthropic signs a block of thoughts before it ends; here there is no signature.
        signature = self._delta(b"signature_delta", b"signature", "") if self._block == _THINKING else b""
        self._block = ""
        return signature + event("content_block_stop", index=self._index)
