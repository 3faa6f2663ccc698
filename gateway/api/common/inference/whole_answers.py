"""Reads an engine's whole answer in OpenAI's form: a completion of a chat or text, or a count of tokens. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.requests.answer_stream import WholeAnswer
from protocol.failures import DECODE_ERRORS, not_understood
from protocol.wire.openai_chunks import LogprobsDelta, ToolCallDelta, Usage


class CompletedMessage(msgspec.Struct):
    """What a model wrote. Each tool call is complete, and has no index."""

    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None


class CompletedChoice(msgspec.Struct):
    """One answer: ``message`` in a chat, ``text`` in a text completion."""

    message: CompletedMessage | None = None
    text: str | None = None
    logprobs: LogprobsDelta | None = None
    finish_reason: str | None = None
    stop_reason: str | None = None
    """The stop sequence that ended the choice; only if ``return_stop_reason`` asked for it."""

    @property
    def answered(self) -> CompletedMessage:
        """What the model wrote, in a text completion as well."""
        return self.message or CompletedMessage(self.text)


class WholeCompletion(msgspec.Struct):
    """A whole completion."""

    choices: list[CompletedChoice]
    id: str = ""
    model: str = ""
    usage: Usage | None = None
    timings: msgspec.Raw = msgspec.Raw(b"")


class _InputTokens(msgspec.Struct):
    input_tokens: int


_completion: Final = msgspec.json.Decoder(WholeCompletion).decode
_input_tokens: Final = msgspec.json.Decoder(_InputTokens).decode


def read_completion(answer: WholeAnswer) -> WholeCompletion:
    """Return the completion; raises ``backend_error`` for any other answer."""
    try:
        return _completion(answer.body)
    except DECODE_ERRORS as problem:
        raise not_understood(problem, answer.model) from None


def read_input_tokens(answer: WholeAnswer) -> int:
    """Return the count of tokens; raises ``backend_error`` for any other answer."""
    try:
        return _input_tokens(answer.body).input_tokens
    except DECODE_ERRORS as problem:
        raise not_understood(problem, answer.model) from None
