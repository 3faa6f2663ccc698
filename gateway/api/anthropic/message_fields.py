"""The fields that whole and streamed messages share: ids, usage, why the answer ended. Pure."""

from __future__ import annotations

from typing import Any, Final

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
