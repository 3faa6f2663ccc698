"""A whole chat completion as a whole response. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from gateway.api.responses.output.response_object import ResponseBuilder
from gateway.requests.inference import WholeAnswer
from protocol.failures import Code, Failure
from protocol.wire.decoding import DECODE_ERRORS
from protocol.wire.openai_chunks import ChoiceDelta, FunctionDelta, LogprobsDelta, MessageDelta, ToolCallDelta, Usage


class _ToolCall(msgspec.Struct):
    function: FunctionDelta
    id: str = ""


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    logprobs: LogprobsDelta | None = None
    finish_reason: str | None = None


class _ChatCompletion(msgspec.Struct):
    choices: list[_Choice]
    model: str = ""
    usage: Usage | None = None


_decode: Final = msgspec.json.Decoder(_ChatCompletion).decode


def whole_response(
    builder: ResponseBuilder, answer: WholeAnswer, clock: Callable[[], float] = time.time
) -> dict[str, Any]:
    """Return the response; raises ``backend_error`` for an answer that is not a chat completion."""
    try:
        completion = _decode(answer.body)
    except DECODE_ERRORS as problem:
        message = "the engine's answer was not understood"
        raise Failure(Code.BACKEND_ERROR, message, model=answer.model, detail=str(problem)).raised() from None
    builder.model = builder.model or completion.model
    builder.usage = completion.usage
    for choice in completion.choices[:1]:
        builder.add(_as_delta(choice))
    builder.end()
    return builder.ended(clock())


def _as_delta(choice: _Choice) -> ChoiceDelta:
    """Return a whole choice as the only piece of a stream, so that both become a response in the same way."""
    message = choice.message
    calls = [
        ToolCallDelta(index=position, id=call.id, function=call.function)
        for position, call in enumerate(message.tool_calls or ())
    ]
    delta = MessageDelta(content=message.content, reasoning_content=message.reasoning_content, tool_calls=calls)
    return ChoiceDelta(delta=delta, logprobs=choice.logprobs, finish_reason=choice.finish_reason)
