"""Translates OpenAI's generation requests for llama-server: to a stream, if a stream is useful. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure
from protocol.models.sampling import TOKEN_LIMIT_FIELDS, SamplingValue
from protocol.requests.grammar_limits import GRAMMAR_FIELDS, SCHEMA_FIELDS, is_large_maximum
from protocol.requests.text_limits import first_byte
from workers.backends.engine_request import EngineRequest
from workers.backends.requests.sampling_defaults import apply_sampling_defaults
from workers.stream.stop_reason import StopReasonTranslator

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TRUE: Final = msgspec.Raw(b"true")
_NULL: Final = msgspec.Raw(b"null")

SHORT_BODY_BYTES: Final = 512
"""Bytes of a request whose prompt is computed in one or two batches: progress events would come too late to be useful,
and each costs the engine as much as a token."""
UNSTREAMED_MAX_TOKENS: Final = 16
"""Largest answer, in tokens, that is not worth a stream."""
_MAY_HAVE_ONE: Final = (re.compile(b'"max'), re.compile(rb"\\u"))
"""Part of the name of every maximum, even with escaped letters: one search for both texts takes several times as long."""


def generation_request(
    endpoint: str,
    body: bytes,
    stream: bool,
    defaults: Mapping[str, SamplingValue],
    names: Mapping[str, str],
    *,
    complete_streams: bool = False,
) -> EngineRequest:
    """Ask for a stream, whatever the client wants: only then llama-server notices that the client hangs up.

    There are two exceptions. First, a chat stream leaves out the log probabilities of tokens without text (``<think>``,
    the syntax of a tool call, the beginning of a stop word) and some fields of ``verbose``. A client that wants a whole
    answer with these gets the engine's own, which does not end when the client hangs up. Second, a few tokens after a
    short prompt cost the engine less without a stream, and end soon anyway.

    ``complete_streams``: the engine leaves nothing out of streams, which makes the first exception unnecessary, and
    does not know ``timings_per_token``. llama-server is asked for these timings if the worker does not read the stream
    token by token.

    ``return_stop_reason`` asks for the stop sequence that ended the answer, as ``stop_reason`` of the choice. The last
    chunk of a verbose stream names it.

    ``defaults`` and ``names``: see :func:`workers.backends.requests.sampling_defaults.apply_sampling_defaults`.
    """
    try:
        fields = _OBJECT.decode(body)
        settled = drop_large_maxima(fields) | apply_sampling_defaults(endpoint, fields, defaults, names)
        options = _OBJECT.decode(fields["stream_options"]) if fields.get("stream_options", _NULL) != _NULL else {}
    except DECODE_ERRORS as problem:
        raise Failure(Code.INVALID_JSON, f"the request is not a JSON object: {problem}").raised() from None
    wants_stop_reason = fields.pop("return_stop_reason", _NULL) == _TRUE
    usage, progress = options.get("include_usage") == _TRUE, fields.get("return_progress") == _TRUE
    prompts = count_prompts(fields.get("prompt")) if endpoint == "completions" else 1
    choices = positive_number(fields.get("n"))
    shown_only_whole = not complete_streams and (
        fields.get("verbose") == _TRUE or (endpoint == "chat/completions" and fields.get("logprobs") == _TRUE)
    )
    brief = (
        len(body) <= SHORT_BODY_BYTES and prompts * choices == 1 and answer_token_limit(fields) <= UNSTREAMED_MAX_TOKENS
    )
    if not stream and not wants_stop_reason and (shown_only_whole or brief):
        whole = msgspec.json.encode(fields) if settled or b'"return_stop_reason"' in body else body
        return EngineRequest("POST", f"/v1/{endpoint}", whole, choices=choices, grammar=has_grammar(fields))
    patient = not stream and not complete_streams and prompts * choices == 1
    if patient:
        fields["timings_per_token"] = _TRUE
    fields["stream"] = options["include_usage"] = _TRUE
    if len(body) > SHORT_BODY_BYTES:
        fields["return_progress"] = _TRUE
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    if wants_stop_reason:
        fields["verbose"] = _TRUE
    return EngineRequest(
        "POST",
        f"/v1/{endpoint}",
        msgspec.json.encode(fields),
        streamed=True,
        usage=usage,
        progress=progress,
        prompts=prompts,
        choices=choices,
        patient=patient,
        grammar=has_grammar(fields),
        translate=StopReasonTranslator().feed if wants_stop_reason else None,
    )


def has_grammar(fields: Mapping[str, msgspec.Raw]) -> bool:
    """Return whether the request has a grammar, or something that the engine turns into one."""
    return any(fields[name] != _NULL for name in GRAMMAR_FIELDS if name in fields)


def answer_token_limit(fields: dict[str, msgspec.Raw]) -> float:
    """Return how many tokens the answer may have; infinity if the request has no valid limit."""
    largest = -1.0
    for name in TOKEN_LIMIT_FIELDS:
        if name in fields:
            limit = bytes(fields[name])
            largest = max(largest, int(limit) if limit.isdigit() and len(limit) < 6 else math.inf)
    return largest if largest >= 0 else math.inf


def positive_number(raw: msgspec.Raw | None) -> int:
    """Return a whole number of a request; 1 if it is missing, below 1 or not a whole number."""
    digits = bytes(raw or b"")
    return max(1, int(digits)) if digits.isdigit() and len(digits) < 6 else 1


def count_prompts(raw: msgspec.Raw | None) -> int:
    """Count the prompts of a request.

    A list of texts, lists and objects is several; a list that contains a token number is one.
    """
    if raw is None or first_byte(raw) != b"[":
        return 1
    try:
        items = _LIST.decode(raw)
    except DECODE_ERRORS:
        return 1
    several = [first_byte(item) in (b'"', b"[", b"{") for item in items]
    return len(several) if all(several) and several else 1


def drop_large_maxima(fields: dict[str, msgspec.Raw]) -> bool:
    """Remove them from the schemas in ``fields``; return whether there were any."""
    changed = False
    for name in SCHEMA_FIELDS:
        raw = fields.get(name)
        if raw is not None and any(text.search(raw) for text in _MAY_HAVE_ONE):
            value = msgspec.json.decode(raw)
            without = _without_large_maxima(value)
            if without != value:
                fields[name] = msgspec.Raw(msgspec.json.encode(without))
                changed = True
    return changed


def _without_large_maxima(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_large_maxima(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_large_maxima(each) for name, each in value.items() if not is_large_maximum(name, each)}
