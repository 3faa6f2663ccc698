"""How many tokens a request may generate, as its client asked. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.wire.decoding import DECODE_ERRORS

MOST: Final = 10**12


class _Limits(msgspec.Struct):
    max_tokens: Any = None
    max_completion_tokens: Any = None
    n_predict: Any = None


_decode: Final = msgspec.json.Decoder(_Limits).decode


def token_limit(body: bytes, answers: int) -> int:
    """Return the tokens of all ``answers`` of a request together, 0 if it does not say."""
    try:
        limits = _decode(body)
    except DECODE_ERRORS:
        return 0
    given = (limits.max_tokens, limits.max_completion_tokens, limits.n_predict)
    each = max((limit for limit in given if type(limit) is int), default=0)
    return max(0, min(MOST, each * max(1, answers)))
