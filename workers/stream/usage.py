"""Token counts of a request, of all its completions together, in their place in OpenAI's form. Pure.

llama-server counts each completion separately: in the chunk that ends it, in a chunk after that one, or, in a whole
answer, only for the first completion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from protocol.failures import DECODE_ERRORS
from protocol.requests.text_limits import BYTES_PER_TOKEN

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


TokenCount = Annotated[int, Meta(ge=0, le=2**32)]
"""A count of an engine: one outside these bounds is not believed, because sums of them are kept in 64 bits."""


class CachedTokens(msgspec.Struct):
    """Tokens of a prompt that were found in the prompt cache."""

    cached_tokens: TokenCount = 0


class ChoiceUsage(msgspec.Struct):
    """Token counts of one completion."""

    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0
    prompt_tokens_details: CachedTokens | None = None

    @property
    def cached_tokens(self) -> int:
        """Tokens of its prompt that were found in the prompt cache."""
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else 0


class _Message(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw()
    reasoning_content: msgspec.Raw = msgspec.Raw()
    tool_calls: msgspec.Raw = msgspec.Raw()


class _Completion(msgspec.Struct):
    message: _Message | None = None
    text: msgspec.Raw = msgspec.Raw()


class _Completions(msgspec.Struct):
    choices: list[_Completion] = []


_completions: Final = msgspec.json.Decoder(_Completions).decode
_NULL: Final = msgspec.Raw(b"null")
_usage: Final = msgspec.json.Decoder(ChoiceUsage).decode


def decode_usage(data: bytes) -> ChoiceUsage | None:
    """Return the counts in a JSON object; None for anything else."""
    try:
        return _usage(data)
    except DECODE_ERRORS:
        return None


def estimated_answer_tokens(body: bytes) -> int:
    """Estimate the tokens of a whole answer whose engine does not count them; 0 for one without text.

    The rule is that for prompts (:func:`~protocol.requests.text_limits.estimated_prompt_tokens`).
    """
    try:
        choices = _completions(body).choices
    except DECODE_ERRORS:
        return 0
    spoken = [each.message or _Message() for each in choices]
    texts = [text for each in spoken for text in (each.content, each.reasoning_content, each.tool_calls)]
    sizes = [memoryview(text).nbytes for text in (*texts, *(each.text for each in choices)) if text != _NULL]
    return -(-sum(sizes) // BYTES_PER_TOKEN)


def is_usage(value: Any) -> bool:
    """Return whether a decoded JSON value has counts, or leaves them out: nothing else is passed on or counted."""
    try:
        msgspec.convert(value, ChoiceUsage)
    except msgspec.ValidationError:
        return False
    return True


def total_usage(usages: Sequence[ChoiceUsage], choices: int) -> dict[str, Any]:
    """Return the ``usage`` of all completions. Each reports its whole prompt, which counts once for its ``choices``."""
    completion = sum(usage.completion_tokens for usage in usages)
    prompt = sum(usage.prompt_tokens for usage in usages) // choices
    cached = sum(usage.cached_tokens for usage in usages) // choices
    return {
        "completion_tokens": completion,
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def without_usage(payload: bytes) -> bytes:
    """Return the event of a chunk that ends a completion, without its token counts."""
    fields = _fields(payload)
    del fields["usage"]
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def usage_event(payload: bytes, usages: Sequence[ChoiceUsage], choices: int) -> bytes:
    """Return the last event of a stream: no choices, and the token counts.

    ``payload`` is a chunk of the same stream.
    """
    fields: dict[str, Any] = {
        name: value for name, value in _fields(payload).items() if name not in ("timings", "__verbose")
    }
    fields |= {"choices": [], "usage": total_usage(usages, choices)}
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


def with_usage_of_all(body: bytes) -> bytes:
    """Return a whole answer that counts the tokens of all completions that list their log probabilities."""
    document = _object(body)
    usage, choices = document.get("usage"), document.get("choices", [])
    lists = [(choice.get("logprobs") or {}).get("content") for choice in choices]
    if not isinstance(usage, dict) or not all(isinstance(each, list) for each in lists):
        return body
    completion = sum(len(each or []) for each in lists)
    usage |= {"completion_tokens": completion, "total_tokens": usage.get("prompt_tokens", 0) + completion}
    return msgspec.json.encode(document)
