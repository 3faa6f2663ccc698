"""Log probabilities of only the chosen tokens, which llama-server cannot be asked for. Pure.

It returns 20 alternatives for each token if a chat gives no number, and no log probabilities at all for the number 0.
In OpenAI's API, both mean the chosen tokens, with empty lists of alternatives. So one alternative is requested, and
removed from the answer.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, invalid
from workers.backends.engine_request import EngineRequest
from workers.backends.requests.generation_request import answer_token_limit
from workers.stream.sse_parser import EventTranslator

_ASKED: Final = b'"logprobs"'
_ALTERNATIVES: Final = b'"top_logprobs":['
_NO_NUMBER: Final = (b"", b"null", b"0")
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


def request_for_one_alternative(endpoint: str, body: bytes) -> bytes | None:
    """Return a request for the chosen tokens' log probabilities as one for one alternative each; None for any other request."""
    if _ASKED not in body:
        return None
    try:
        fields = _fields(body)
    except DECODE_ERRORS:
        return None
    asked, number = bytes(fields.get("logprobs", b"")), "logprobs"
    if endpoint == "chat/completions":
        number = "top_logprobs"
        if asked != b"true" or bytes(fields.get(number, b"")) not in _NO_NUMBER:
            return None
    elif asked not in (b"true", b"0"):
        return None
    return msgspec.json.encode({**fields, number: msgspec.Raw(b"1")})


def check_drafted_logprobs(body: bytes) -> None:
    """Raise ``invalid_request`` for log probabilities of several tokens from an engine with a draft model, in OpenAI's forms.

    llama-server reports the probability 1 for each token that the draft model has guessed; it only computes the first
    token itself.
    """
    if _ASKED not in body:
        return
    try:
        fields = _fields(body)
    except DECODE_ERRORS:
        return
    if bytes(fields.get("logprobs", b"false")) not in (b"false", b"null") and answer_token_limit(fields) != 1:
        reason = "this model runs with a draft model, and gives log probabilities for one token only: ask for one token, or leave `logprobs` out"
        raise invalid(reason, "logprobs")


def with_chosen_logprobs(request: EngineRequest) -> EngineRequest:
    """Return a request whose answer has empty lists of alternatives."""
    if not request.streamed:
        return request._replace(translate=_whole_without_alternatives)
    return request.translated(EventTranslator(_ALTERNATIVES, without_alternatives).feed)


def _whole_without_alternatives(payload: bytes) -> bytes:
    """Do the same for a whole answer.

    A choice without tokens, which a stop word ended at once, has an empty list of them.
    """
    document = _object(without_alternatives(payload))
    for choice in document.get("choices", []):
        choice.setdefault("logprobs", {"content": []})
    return msgspec.json.encode(document)


def without_alternatives(payload: bytes) -> bytes:
    """Return a chunk or a whole answer with empty lists of alternatives; raises ``DECODE_ERRORS`` or ValueError for anything else."""
    document = _object(payload)
    try:
        for choice in document.get("choices", []):
            for token in (choice.get("logprobs") or {}).get("content") or []:
                token["top_logprobs"] = []
    except (AttributeError, TypeError) as problem:
        raise ValueError(str(problem)) from problem
    return msgspec.json.encode(document)
