"""A whole chat completion as a message of Anthropic's API, and the fields that streamed messages have in common with it. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.api.common.inference.whole_answers import CompletedChoice, read_completion, read_input_tokens
from gateway.requests.answer_stream import WholeAnswer
from protocol.failures import DECODE_ERRORS, not_understood
from protocol.wire.openai_chunks import Usage

_CHAT_ID: Final = "chatcmpl-"
_STOP_REASONS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def message_id(chat_id: str) -> str:
    """Return the message id for an engine's answer."""
    return "msg_" + chat_id.removeprefix(_CHAT_ID)


def tool_use_id(call_id: str, chat_id: str, position: int) -> str:
    """Return the id of a call: the engine's, or one derived from its position if the engine gives none."""
    return call_id or f"toolu_{chat_id.removeprefix(_CHAT_ID)}_{position}"


def usage_fields(usage: Usage | None) -> dict[str, int]:
    """Return the token usage; cached prompt tokens are counted separately."""
    used = usage or Usage()
    cached = used.prompt_tokens_details.cached_tokens if used.prompt_tokens_details else 0
    return {
        "input_tokens": max(0, used.prompt_tokens - cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": used.completion_tokens,
    }


def stop_fields(finish_reason: str, stop_sequence: str | None, output_tokens: int, max_tokens: int) -> dict[str, Any]:
    """Return why the answer ended: ``stop_reason``, and ``stop_sequence`` if it was one.

    An answer that was cut before it reached ``max_tokens`` has filled the context.
    """
    if finish_reason == "length":
        full = 0 < output_tokens < max_tokens
        return {"stop_reason": "model_context_window_exceeded" if full else "max_tokens", "stop_sequence": None}
    if stop_sequence and finish_reason == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": stop_sequence}
    return {"stop_reason": _STOP_REASONS.get(finish_reason, "end_turn"), "stop_sequence": None}


_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def message(answer: WholeAnswer, max_tokens: int, *, one_call: bool = False) -> bytes:
    """Return the JSON of the message; raises ``backend_error`` for an answer that cannot be read.

    ``one_call``: drop the calls after the first one. Some engines make more although they were told not to.
    """
    completion = read_completion(answer)
    try:
        choice = completion.choices[0]
        calls = choice.answered.tool_calls or []
        if one_call and len(calls) > 1:
            del calls[1:]
            choice.finish_reason = "tool_calls"
        content = _content(choice, completion.id)
    except (IndexError, *DECODE_ERRORS) as problem:
        raise not_understood(problem, answer.model) from None
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
    return msgspec.json.encode({"input_tokens": read_input_tokens(answer)})


def _content(choice: CompletedChoice, chat_id: str) -> list[dict[str, Any]]:
    answered = choice.answered
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
