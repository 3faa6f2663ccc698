"""The one reader of the chunks in OpenAI's streams, for workers, gateways and the terminal.

A stream is a series of server-sent events (``data: {…}`` and an empty line). Each event holds one chunk; ``data:
[DONE]`` ends the stream. Fields that are not named here are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from protocol.failures import DECODE_ERRORS

_EVENT_END: Final = b"\n\n"
_DATA: Final = b"data:"
_DONE: Final = b"[DONE]"
_ABSENT: Final = msgspec.Raw(b"")


class FunctionDelta(msgspec.Struct, gc=False):
    """A piece of a function call: the name comes once, the arguments piece by piece."""

    name: str = ""
    arguments: str = ""


class ToolCallDelta(msgspec.Struct, gc=False):
    """A piece of one tool call of a message; pieces with the same ``index`` belong together."""

    index: int = 0
    id: str = ""
    type: str = "function"
    function: FunctionDelta = msgspec.field(default_factory=FunctionDelta)


class MessageDelta(msgspec.Struct, gc=False):
    """What one chunk adds to a chat message."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] = []


class LogprobsDelta(msgspec.Struct, gc=False):
    """The log probabilities of a chunk's tokens, as undecoded JSON."""

    content: list[msgspec.Raw] | None = None


class ChoiceDelta(msgspec.Struct, gc=False):
    """What one chunk adds to one choice: ``delta`` in a chat, ``text`` in a text completion."""

    index: int = 0
    delta: MessageDelta | None = None
    text: str | None = None
    logprobs: LogprobsDelta | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None
    """The stop sequence that ended the choice; only if ``return_stop_reason`` asked for it."""

    @property
    def content(self) -> str:
        """The text that the chunk adds, empty if there is none."""
        return (self.delta.content if self.delta is not None else self.text) or ""


class Chunk(msgspec.Struct, gc=False):
    """One chunk.

    ``usage`` and ``timings`` are JSON, empty if the chunk has none; :func:`read_usage` reads ``usage``.
    """

    id: str = ""
    model: str = ""
    choices: list[ChoiceDelta] = []
    usage: msgspec.Raw = _ABSENT
    timings: msgspec.Raw = _ABSENT


class PromptTokensDetails(msgspec.Struct):
    """How the tokens of a prompt were counted."""

    cached_tokens: int = 0


class Usage(msgspec.Struct):
    """The tokens that a generation used."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails | None = None


_chunk: Final = msgspec.json.Decoder(Chunk).decode
_chunks: Final = msgspec.json.Decoder(list[Chunk]).decode
_usage: Final = msgspec.json.Decoder(Usage | None).decode


def payloads(events: bytes) -> Iterator[bytes]:
    """Yield the JSON of each chunk in ``events``, which are whole events. Comments and the end marker are left out."""
    for event in events.split(_EVENT_END):
        if event.startswith(_DATA):
            payload = event[len(_DATA) :].strip()
            if payload != _DONE:
                yield payload


def read_chunk(payload: bytes | str) -> Chunk:
    """Return the chunk; raises the ``DECODE_ERRORS`` of ``protocol.failures`` for anything else."""
    return _chunk(payload)


def read_chunks(events: bytes) -> Iterable[Chunk]:
    """Return the chunks in whole events; raises like :func:`read_chunk`."""
    # A stream has an event for each token, and reading them as one list costs half. JSON has no line feed within a
    # string, so only the beginnings of events are replaced. If the result is not a list of chunks, there are comments,
    # the end marker or an error among them.
    try:
        chunks = _chunks(b"[%b]" % events.removeprefix(_DATA).replace(_EVENT_END + _DATA, b","))
    except DECODE_ERRORS:
        return map(read_chunk, payloads(events))
    return chunks if len(chunks) == events.count(_EVENT_END) else map(read_chunk, payloads(events))


def text_of(chunk: Chunk) -> str:
    """Return the text of a chunk that only adds text to the only choice, as most do; empty for any other chunk."""
    if len(chunk.choices) != 1 or chunk.usage or chunk.timings:
        return ""
    choice = chunk.choices[0]
    if choice.index or choice.finish_reason or choice.logprobs or choice.stop_reason:
        return ""
    delta = choice.delta
    if delta is None:
        return choice.text or ""
    return "" if delta.reasoning_content or delta.tool_calls else delta.content or ""


def read_usage(chunk: Chunk) -> Usage | None:
    """Return the token counts that a chunk reports, None if it reports none; raises like :func:`read_chunk`."""
    return _usage(chunk.usage) if bytes(chunk.usage) else None
