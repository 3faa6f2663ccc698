"""What an OpenAI request for a generation becomes for llama-server: a stream, wherever that is of use. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.failures import Code, Failure
from protocol.models.sampling import SamplingValue
from protocol.wire.decoding import DECODE_ERRORS
from workers.backends.base import EngineRequest
from workers.backends.sampling_defaults import TOKEN_LIMIT_FIELDS, apply_sampling_defaults

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TRUE: Final = msgspec.Raw(b"true")
_NULL: Final = msgspec.Raw(b"null")

SHORT_BODY_BYTES: Final = 512
"""Bytes of a request whose prompt is read in a batch or two: progress events would come too late to be of use,
and each costs the engine as much as a token does."""
UNSTREAMED_MAX_TOKENS: Final = 16
"""Tokens of an answer that is not worth a stream."""


def generation_request(
    endpoint: str, body: bytes, stream: bool, defaults: Mapping[str, SamplingValue], names: Mapping[str, str]
) -> EngineRequest:
    """Ask for a stream whatever the client wants: only a stream's client can hang up on llama-server.

    The exception: a chat's stream leaves out the log probabilities of tokens that show nothing by themselves
    (``<think>``, a tool call's syntax, the beginning of a stop word), and what ``verbose`` tells of all of an answer, so
    who wants either whole gets the engine's own, and hanging up does not end its generation.  Nor does it where that ends by itself at once: a
    short prompt and a few tokens cost the engine less than a stream of them does.

    ``defaults`` and ``names``: see :func:`workers.backends.sampling_defaults.apply_sampling_defaults`.
    """
    try:
        fields = _OBJECT.decode(body)
        settled = apply_sampling_defaults(fields, defaults, names)
        options = _OBJECT.decode(fields["stream_options"]) if fields.get("stream_options", _NULL) != _NULL else {}
    except DECODE_ERRORS as problem:
        raise Failure(Code.INVALID_JSON, f"the request is not a JSON object: {problem}").raised() from None
    usage, progress = options.get("include_usage") == _TRUE, fields.get("return_progress") == _TRUE
    prompts = _prompts(fields.get("prompt")) if endpoint == "completions" else 1
    choices = _number(fields.get("n"))
    shown_only_whole = fields.get("verbose") == _TRUE or (
        endpoint == "chat/completions" and fields.get("logprobs") == _TRUE
    )
    brief = len(body) <= SHORT_BODY_BYTES and prompts * choices == 1 and _most_tokens(fields) <= UNSTREAMED_MAX_TOKENS
    if not stream and (shown_only_whole or brief):
        whole = msgspec.json.encode(fields) if settled else body
        return EngineRequest("POST", f"/v1/{endpoint}", whole, choices=choices)
    fields["stream"] = options["include_usage"] = _TRUE
    if len(body) > SHORT_BODY_BYTES:
        fields["return_progress"] = _TRUE
    fields["stream_options"] = msgspec.Raw(msgspec.json.encode(options))
    return EngineRequest(
        "POST",
        f"/v1/{endpoint}",
        msgspec.json.encode(fields),
        streamed=True,
        usage=usage,
        progress=progress,
        prompts=prompts,
        choices=choices,
    )


def _most_tokens(fields: dict[str, msgspec.Raw]) -> float:
    """Return how many tokens the answer may have; infinity if nothing legible says so."""
    said = [bytes(fields[name]) for name in TOKEN_LIMIT_FIELDS if name in fields]
    return max((int(each) if each.isdigit() and len(each) < 6 else math.inf for each in said), default=math.inf)


def _number(raw: msgspec.Raw | None) -> int:
    digits = bytes(raw or b"")
    return max(1, int(digits)) if digits.isdigit() and len(digits) < 6 else 1


def _prompts(raw: msgspec.Raw | None) -> int:
    """Count the prompts of a request: a list of strings or lists is several, a list of tokens is one."""
    if raw is None or memoryview(raw)[:1].tobytes() != b"[":
        return 1
    try:
        items = _LIST.decode(raw)
    except DECODE_ERRORS:
        return 1
    return max(1, sum(memoryview(item)[:1].tobytes() in (b'"', b"[", b"{") for item in items))
