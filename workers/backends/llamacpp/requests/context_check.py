"""Refuses what is too much for a model's context: texts, and log probabilities of all tokens that an answer may have. Pure.

An engine finds out that a text is too long only when it has tokenized all of it.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure, invalid
from protocol.requests.request_limits import MAX_PROBABILITIES
from protocol.requests.text_limits import longest_text
from workers.backends.engine_request import EngineRequest
from workers.backends.error_texts import shorten_advice
from workers.backends.requests.generation_request import answer_token_limit

MAX_TOKEN_BYTES: Final = 64
"""The most bytes of JSON that a token of a text has on average; single tokens may have more."""
MAX_READ_BYTES: Final = 512 * 1024
"""JSON of a text that is only to be tokenized, if the context takes less.

With a ``llama`` vocabulary that lacks its letters, it takes an engine's thread 8 s; the time grows with the square of
the length.
"""

UNLIMITED_ALTERNATIVES: Final = 20
"""Alternatives of each token that an answer of any length may have; OpenAI's own limit."""
_ALTERNATIVES: Final = ("n_probs", "top_logprobs", "logprobs")
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def check_read(body: bytes, context: int) -> None:
    """Raise ``invalid_request`` for a text that is too long to tokenize, template, count, or fill in.

    ``context``: 0 if unknown.
    """
    most = max(context * MAX_TOKEN_BYTES, MAX_READ_BYTES)
    field, size = longest_text(body, most) if len(body) > most else ("", 0)
    if field:
        raise invalid(f"`{field}` has {size} bytes of text; the limit is {most}: send less of it at once", field)


def check_context(body: bytes, context: int, most_context: int) -> None:
    """Raise ``context_length_exceeded`` for a text that must have more tokens than ``context``; 0: unknown.

    ``most_context``: see :attr:`~workers.backends.base.Backend.most_context`.
    """
    most = context * MAX_TOKEN_BYTES
    if not most or len(body) <= most:
        return
    field, size = longest_text(body, most)
    if field:
        reason = f"`{field}` has {size} bytes of text, more than the model's context of {context} tokens can take"
        advice = shorten_advice(most_context, can_grow=not most_context or context < most_context)
        raise Failure(Code.CONTEXT_EXCEEDED, f"{reason}: {advice}", param=field).raised()


def check_probabilities(request: EngineRequest, context: int) -> None:
    """Raise ``invalid_request`` for an answer that may have more than ``MAX_PROBABILITIES``. ``context``: 0 if not known.

    Each is about 100 bytes of JSON, which engine and worker hold until the answer is whole.
    """
    if b'"n_probs"' not in request.body and b'logprobs"' not in request.body:
        return
    fields = _fields(request.body)
    name, most = max(((name, _alternatives(fields.get(name))) for name in _ALTERNATIVES), key=lambda each: each[1])
    if most <= UNLIMITED_ALTERNATIVES:
        return
    tokens = min(answer_token_limit(fields), context or math.inf)
    answers = request.prompts * request.choices
    if most * tokens * answers <= MAX_PROBABILITIES:
        return
    length = f"up to {tokens:.0f} tokens" if tokens < math.inf else "an answer without a limit"
    several = f" in each of {answers} answers" if answers > 1 else ""
    reason = f"`{name}` is {most:.0f}, for {length}{several}; the limit is {MAX_PROBABILITIES} log probabilities"
    raise invalid(f"{reason}: ask for fewer, or for a shorter answer (`max_tokens`, `n_predict`)", name)


def _alternatives(raw: msgspec.Raw | None) -> float:
    try:
        value = msgspec.json.decode(raw) if raw is not None else 0
    except DECODE_ERRORS:
        return 0
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
