"""A whole chat completion as a message of Anthropic's API. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.anthropic.message_fields import message_id, stop_fields, tool_use_id, usage_fields
from gateway.requests.inference import WholeAnswer
from protocol.failures import Code, Failure, LemonbusError
from protocol.wire.decoding import DECODE_ERRORS
from protocol.wire.openai_chunks import FunctionDelta, Usage


class _ToolCall(msgspec.Struct):
    id: str = ""
    function: FunctionDelta = msgspec.field(default_factory=FunctionDelta)


class _ChatMessage(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    message: _ChatMessage
    finish_reason: str | None = None
    stop_reason: str | None = None


class _ChatCompletion(msgspec.Struct):
    choices: list[_Choice]
    id: str = ""
    model: str = ""
    usage: Usage | None = None


class _InputTokens(msgspec.Struct):
    input_tokens: int


_completion: Final = msgspec.json.Decoder(_ChatCompletion).decode
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_input_tokens: Final = msgspec.json.Decoder(_InputTokens).decode


def message(answer: WholeAnswer, max_tokens: int, *, one_call: bool = False) -> bytes:
    """Return the JSON of the message; raises ``backend_error`` for an answer that cannot be read.

    ``one_call``: drop the calls after the first one. Some engines make more although they were told not to.
    """
    try:
        completion = _completion(answer.body)
        choice = completion.choices[0]
        calls = choice.message.tool_calls or []
        if one_call and len(calls) > 1:
            del calls[1:]
            choice.finish_reason = "tool_calls"
        content = _content(choice, completion.id)
    except (IndexError, *DECODE_ERRORS) as problem:
        raise _not_understood(answer, problem) from None
    used = usage_fields(completion.usage)
    ended = stop_fields(choice.finish_reason or "stop", choice.stop_reason, used["output_tokens"], max_tokens)
    return msgspec.json.encode(
        {
            "id": message_id(completion.id),
            "type": "message",
            "role": "assistant",
            "model": completion.model or answer.model,
            "content": content,
            **ended,
            "usage": used,
        }
    )


def token_count(answer: WholeAnswer) -> bytes:
    """Return the JSON of a token count; raises like :func:`message`."""
    try:
        count = _input_tokens(answer.body).input_tokens
    except DECODE_ERRORS as problem:
        raise _not_understood(answer, problem) from None
    return msgspec.json.encode({"input_tokens": count})


def _not_understood(answer: WholeAnswer, problem: Exception) -> LemonbusError:
    message = "the engine's answer was not understood"
    return Failure(Code.BACKEND_ERROR, message, model=answer.model, detail=str(problem)).raised()


def _content(choice: _Choice, chat_id: str) -> list[dict[str, Any]]:
    answered = choice.message
    content: list[dict[str, Any]] = []
    if answered.reasoning_content:
        content.append({"type": "thinking", "thinking": answered.reasoning_content, "signature": ""})
    if answered.content:
        content.append({"type": "text", "text": answered.content})
    for position, call in enumerate(answered.tool_calls or []):
        # The arguments of a call that was cut off at the limit are incomplete.
        cut = choice.finish_reason == "length"
        content.append(
            {
                "type": "tool_use",
                "id": tool_use_id(call.id, chat_id, position),
                "name": call.function.name,
                "input": _arguments(call.function.arguments, cut=cut),
            }
        )
    return content


def _arguments(text: str, *, cut: bool) -> dict[str, Any]:
    if not text.strip():
        return {}
    try:
        return _object(text)
    except DECODE_ERRORS:
        if cut:
            return {}
        raise
