"""Assembles the response to a request that is not streamed from the chunks of a stream. Pure.

Invariant: the result equals what the engine itself would have answered, field by field. Usage counts all choices, and
timings are those of the first. A message without text has an empty text; log probabilities are copied unchanged. One
difference remains: if the generation is cut off right after ``<think>``, the engine's whole response shows the tag, but
its stream shows nothing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.messages.events import MAX_TOKEN_TIMES
from protocol.wire.openai_chunks import ChoiceDelta, MessageDelta, ToolCallDelta, payloads, read_chunk
from workers.stream.sse_filter import EngineTimings
from workers.stream.token_timing import EngineMark

_KNOWN: Final = {"choices", "created", "id", "model", "object", "system_fingerprint", "timings", "usage"}


_timings = msgspec.json.Decoder(EngineTimings).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class _AssembledChoice:
    """What has arrived of one choice."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] | None = None
        self.calls: dict[int, ToolCallDelta] = {}
        self.arguments: dict[int, list[str]] = {}
        self.logprobs: list[msgspec.Raw] | None = None
        self.finish_reason: str | None = None
        self.stop_reason: str | None = None
        self.timings = msgspec.Raw(b"")

    def add(self, choice: ChoiceDelta) -> None:
        if choice.delta is not None:
            self._add_delta(choice.delta)
        if choice.text:
            self.text.append(choice.text)
        if choice.logprobs is not None and choice.logprobs.content is not None:
            self.logprobs = self.logprobs if self.logprobs is not None else []
            self.logprobs += [msgspec.Raw(bytes(item)) for item in choice.logprobs.content]
        self.finish_reason = choice.finish_reason or self.finish_reason
        self.stop_reason = choice.stop_reason or self.stop_reason

    def _add_delta(self, delta: MessageDelta) -> None:
        if delta.content:
            self.text.append(delta.content)
        if delta.reasoning_content is not None:
            self.reasoning = self.reasoning if self.reasoning is not None else []
            self.reasoning.append(delta.reasoning_content)
        for call in delta.tool_calls:
            self.calls.setdefault(call.index, call)
            self.arguments.setdefault(call.index, []).append(call.function.arguments)

    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self.text)}
        if self.reasoning is not None:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = [
                {
                    "type": call.type,
                    "function": {"name": call.function.name, "arguments": "".join(self.arguments[index])},
                    "id": call.id,
                }
                for index, call in sorted(self.calls.items())
            ]
        return message

    def answer(self, index: int, chat: bool) -> dict[str, Any]:
        logprobs = None if self.logprobs is None else {"content": self.logprobs}
        if not chat:
            return {
                "text": "".join(self.text),
                "index": index,
                "logprobs": logprobs,
                "finish_reason": self.finish_reason,
            }
        choice: dict[str, Any] = {
            "finish_reason": self.finish_reason,
            "index": index,
            "message": self.message(),
        }
        if logprobs is not None:
            choice["logprobs"] = logprobs
        if self.stop_reason is not None:
            choice["stop_reason"] = self.stop_reason
        return choice


class ResponseAssembler:
    """Collects one stream's chunks, including usage chunks."""

    def __init__(self, chat: bool) -> None:
        """Assemble a chat completion, or a text completion."""
        self._chat = chat
        self._first: dict[str, msgspec.Raw] = {}
        self._choices: dict[int, _AssembledChoice] = {}
        self._last: _AssembledChoice | None = None
        self._usage = msgspec.Raw(b"")
        self.marks: list[EngineMark] = []
        """When the tokens came, if the engine says so."""

    def feed(self, block: bytes) -> None:
        """Take whole events; raises ``DECODE_ERRORS`` for a malformed chunk."""
        for payload in payloads(block):
            self._take(payload)

    def _take(self, payload: bytes) -> None:
        chunk = read_chunk(payload)
        if not self._first:
            self._first = {name: msgspec.Raw(bytes(value)) for name, value in _fields(payload).items()}
        for choice in chunk.choices:
            self._last = self._choices.setdefault(choice.index, _AssembledChoice())
            self._last.add(choice)
        if bytes(chunk.usage):
            self._usage = msgspec.Raw(bytes(chunk.usage))
        if self._last is not None and bytes(chunk.timings):
            # A usage chunk names no choice: its times belong to the finish chunk before it.
            self._last.timings = msgspec.Raw(bytes(chunk.timings))
            if len(self.marks) < MAX_TOKEN_TIMES:
                self.marks.append(_timings(chunk.timings).mark())

    def answer(self) -> bytes:
        """Return the whole response as JSON."""
        body: dict[str, Any] = {
            "choices": [whole.answer(index, self._chat) for index, whole in sorted(self._choices.items())]
        }
        for name in ("created", "model", "system_fingerprint"):
            if name in self._first:
                body[name] = self._first[name]
        body["object"] = "chat.completion" if self._chat else "text_completion"
        first = self._choices[min(self._choices)] if self._choices else _AssembledChoice()
        if bytes(self._usage):
            body["usage"] = self._usage
        if "id" in self._first:
            body["id"] = self._first["id"]
        body |= {name: value for name, value in self._first.items() if name not in _KNOWN}
        if bytes(first.timings):
            body["timings"] = first.timings
        return _encode(body)
