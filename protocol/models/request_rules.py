"""What the operator's configuration changes in the requests of a model: fields that are set and dropped, a system prompt."""

from __future__ import annotations

from typing import Any, Final

import msgspec

PROTECTED_FIELDS: Final = frozenset(
    {
        *("model", "stream", "stream_options", "n", "n_cmpl", "best_of", "id_slot"),
        *("messages", "prompt", "input", "input_prefix", "input_suffix", "input_extra", "content", "tokens"),
        *("query", "documents", "texts", "image", "mask", "file", "suffix", "echo", "encoding_format", "dimensions"),
        *("logprobs", "top_logprobs", "n_probs", "verbose", "return_progress", "return_tokens", "return_stop_reason"),
        *("sampling_defaults", "timings_per_token"),
    }
)
"""Fields that no rule may change: what the client asks, and what the gateway has read to route and to answer it."""


class RequestRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes of every request of a model, in the internal format: OpenAI's fields, whatever API the request came by."""

    set: dict[str, Any] = {}
    """Field → the value that it gets, whatever the client sent."""
    drop: list[str] = []
    """Fields that are removed before others are set."""
    system_prompt: str = ""
    """System message of chats that have none of their own; empty: none."""

    def __bool__(self) -> bool:
        """Return whether they change anything."""
        return bool(self.set or self.drop or self.system_prompt)
