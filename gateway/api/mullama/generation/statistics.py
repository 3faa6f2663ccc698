"""The cost of an answer, under Mullama's names (milliseconds) and Ollama's (nanoseconds). Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.wire.openai_chunks import Usage

_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000


class _Timings(msgspec.Struct):
    """The engine's own times, in milliseconds."""

    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


_decode_timings: Final = msgspec.json.Decoder(_Timings | None).decode


def statistics(usage: Usage, timings: msgspec.Raw, elapsed: float) -> dict[str, Any]:
    """Return the fields of a last line. ``elapsed``: seconds since the request came; ``timings`` may be empty.

    ``load_duration`` is the time before the engine began: in the queue, and for loading the model if necessary. Raises
    ``DECODE_ERRORS`` for malformed timings.
    """
    times = (_decode_timings(timings) if bytes(timings) else None) or _Timings()
    total = int(elapsed * _NS_PER_S)
    prompt, decode = int(times.prompt_ms * _NS_PER_MS), int(times.predicted_ms * _NS_PER_MS)
    tokens = usage.completion_tokens
    # A single token takes the time of the prompt: the engine's time after it is meaningless.
    seconds = (decode if tokens > 1 and decode else total) / _NS_PER_S
    return {
        "total_duration": total,
        "load_duration": max(0, total - prompt - decode),
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": prompt,
        "eval_count": tokens,
        "eval_duration": decode,
        "total_duration_ms": total // _NS_PER_MS,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": tokens,
        "tokens_per_second": round(tokens / seconds, 2) if seconds > 0 else 0.0,
    }
