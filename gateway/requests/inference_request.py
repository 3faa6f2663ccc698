"""An inference request as an API family makes it, for the gateway's side of the bus, and the tokens that it reserves. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.messages.events import Outcome
from protocol.models.sampling import TOKEN_LIMIT_FIELDS
from protocol.requests.text_limits import Pause, RequestFields, estimated_tokens, no_pause

DEFAULT_ANSWER_TOKENS: Final = 4096
"""What is reserved for an answer whose request has no limit of its own: more than most answers have."""
MAX_RESERVED_TOKENS: Final = 10**12
_GENERATIONS: Final = frozenset({"chat/completions", "completions", "completion", "infill"})
"""Endpoints whose engines generate tokens."""
_LLAMACPP_ROUTES: Final = frozenset({"completion", "infill"})
"""Those of them that only llama.cpp has."""
_LLAMACPP_LIMIT: Final = "n_predict"
"""The field that other engines ignore."""
_WITHOUT_TOKENS: Final = ("audio/", "images/")
"""Prefixes of endpoints whose engines do not count tokens."""


class InferenceRequest(msgspec.Struct, frozen=True):
    """An inference request as an API family makes it.

    ``body``: an OpenAI request for ``endpoint`` (see ``protocol.messages.work.SubmitRequest``), with the client's name
    for the ``model`` in it. ``weight``: slots that it uses; 0 for reads. ``label``: the request id. ``ttl``,
    ``context``, ``earlier``, ``more``, ``after``, ``address``, ``digest``, ``via``: as in ``SubmitRequest``.
    ``preparation`` and ``answer_stream`` set the last seven.
    ``reserved_tokens``: see :func:`reserved_tokens`; 0 if no limit of its key counts tokens.
    ``names``: the names of fields of ``body`` in the client's request, where they differ.
    """

    endpoint: str
    model: str
    body: bytes
    label: str = ""
    stream: bool = False
    weight: int = 1
    query: str = ""
    ttl: float | None = None
    context: int = 0
    earlier: Outcome | None = None
    more: bool = False
    after: int = 0
    names: Mapping[str, str] = {}
    address: str = ""
    digest: str = ""
    via: list[str] = []
    reserved_tokens: int = 0


def reserved_tokens(endpoint: str, answers: int, fields: RequestFields, pause: Pause = no_pause) -> int:
    """Return how many tokens a request may use: its prompts, by their bytes, and what its ``answers`` together may have.

    ``fields``: of its body in the internal format. ``pause``: called between the parts of a large one.
    """
    if not answers or endpoint.startswith(_WITHOUT_TOKENS):
        return 0
    each = _answer_limit(endpoint, fields) if endpoint in _GENERATIONS else 0
    return min(MAX_RESERVED_TOKENS, estimated_tokens(fields, pause) + answers * each)


def _answer_limit(endpoint: str, fields: RequestFields) -> int:
    """Return the tokens that an answer may have: the largest limit, because engines differ in which field they use.

    A negative limit is none. In a chat or a text completion, neither is 0, and ``n_predict`` alone does not count.
    """
    native = endpoint in _LLAMACPP_ROUTES
    given = {name: _decoded(fields[name]) for name in TOKEN_LIMIT_FIELDS if name in fields}
    given = {name: limit for name, limit in given.items() if limit is not None}
    least = 0 if native else 1
    limits = [limit if type(limit) is int and limit >= least else DEFAULT_ANSWER_TOKENS for limit in given.values()]
    if not given or (not native and given.keys() == {_LLAMACPP_LIMIT}):
        limits.append(DEFAULT_ANSWER_TOKENS)
    return max(limits)


def _decoded(raw: msgspec.Raw) -> Any:
    """Return a value, or NaN for a number that is too large."""
    try:
        return msgspec.json.decode(raw)
    except DECODE_ERRORS:
        return math.nan
