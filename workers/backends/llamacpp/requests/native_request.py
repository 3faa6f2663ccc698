"""Translates a request of llama.cpp's own form (``completion``, ``infill``) for llama-server, usually to a stream.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.failures import DECODE_ERRORS, Code, Failure
from protocol.models.sampling import SamplingValue
from workers.backends.engine_request import EngineRequest
from workers.backends.requests.generation_request import (
    SHORT_BODY_BYTES,
    UNSTREAMED_MAX_TOKENS,
    answer_token_limit,
    count_prompts,
    drop_large_maxima,
    has_grammar,
    positive_number,
)
from workers.backends.requests.sampling_defaults import apply_sampling_defaults

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TRUE: Final = msgspec.Raw(b"true")
_NONE: Final = msgspec.Raw(b"null")
_EMPTY: Final = msgspec.Raw(b"[]")
_ZERO: Final = msgspec.Raw(b"0")


def native_request(
    endpoint: str, body: bytes, stream: bool, defaults: Mapping[str, SamplingValue], names: Mapping[str, str]
) -> EngineRequest:
    """Ask for a stream unless the answer is short: only then llama-server notices that the client hangs up.

    ``defaults`` and ``names``: see :func:`workers.backends.requests.sampling_defaults.apply_sampling_defaults`.
    """
    try:
        fields = _OBJECT.decode(body)
        drop_large_maxima(fields)
        apply_sampling_defaults(endpoint, fields, defaults, names)
    except DECODE_ERRORS as problem:
        raise Failure(Code.INVALID_JSON, f"the request is not a JSON object: {problem}").raised() from None
    prompts = count_prompts(fields.get("prompt")) if endpoint == "completion" else 1
    choices = positive_number(fields.get("n_cmpl", fields.get("n")))
    progress = fields.get("return_progress") == _TRUE
    long = len(body) > SHORT_BODY_BYTES
    brief = not long and prompts * choices == 1 and answer_token_limit(fields) <= UNSTREAMED_MAX_TOKENS
    # After a stop word, the engine's own answer lacks other probabilities than ours. So short and long answers get one
    # form.
    differs = fields.get("n_probs", _ZERO) not in (_NONE, _ZERO) and fields.get("stop", _NONE) not in (_NONE, _EMPTY)
    streamed = stream or differs or not brief
    if streamed:
        fields["stream"] = _TRUE
    if streamed and long:
        fields["return_progress"] = _TRUE
    return EngineRequest(
        "POST",
        f"/{endpoint}",
        msgspec.json.encode(fields),
        streamed=streamed,
        progress=progress,
        tokens=fields.get("return_tokens") == _TRUE,
        prompts=prompts,
        choices=choices,
        grammar=has_grammar(fields),
        native=True,
    )
