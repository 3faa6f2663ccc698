"""The fields that both generations share: Mullama's at the top, Ollama's in ``options``, and their translation to OpenAI's form. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gateway.api.common.inference.sampling_fields import Fraction, Penalty
from gateway.api.common.ollama_loading import ContextOption, KeepAlive
from protocol.failures import invalid

API_DEFAULTS: Final[dict[str, Any]] = {"max_length": 512, "temperature": 0.7, "top_p": 0.9, "top_k": 40}
"""The document's defaults, under the names of the sampling defaults. Defaults that were set take precedence."""

Factor = Annotated[float, Meta(ge=0, le=1000)]
Count = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
TokenLimit = Annotated[int, Meta(ge=-2, le=2**31 - 1)]
"""-1: until the answer ends by itself; -2: until the context is full, which is the same here."""
Seed = Annotated[int, Meta(ge=-1, le=2**32 - 1)]

_SAME_NAMES: Final = (
    *("temperature", "top_p", "top_k", "min_p", "typical_p", "repeat_last_n", "repeat_penalty", "presence_penalty"),
    *("frequency_penalty", "mirostat", "mirostat_tau", "mirostat_eta", "seed"),
)
"""Options with the same names in requests for engines."""


class Options(ContextOption, kw_only=True):
    """Ollama's ``options``. Others are ignored, as Ollama does."""

    num_predict: TokenLimit | None = None
    stop: str | list[str] | None = None
    temperature: Factor | None = None
    top_p: Fraction | None = None
    top_k: Count | None = None
    min_p: Fraction | None = None
    typical_p: Fraction | None = None
    repeat_last_n: Count | None = None
    repeat_penalty: Factor | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Factor | None = None
    mirostat_eta: Factor | None = None
    seed: Seed | None = None


class GenerationFields(msgspec.Struct, kw_only=True):
    """The fields that ``generate`` and ``chat`` share."""

    model: str | None = None
    stream: bool | None = None
    max_tokens: TokenLimit | None = None
    temperature: Factor | None = None
    top_p: Fraction | None = None
    top_k: Count | None = None
    stop: str | list[str] | None = None
    options: Options | None = None
    format: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    think: bool | Literal["low", "medium", "high"] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    keep_alive: KeepAlive | None = None


def sampling_fields(request: GenerationFields) -> dict[str, Any]:
    """Return a request's sampling options in OpenAI's form, including the API's defaults.

    Raises ``invalid_request`` for an option that appears twice with different values.
    """
    options = request.options or Options()
    fields: dict[str, Any] = {}
    limit = _one_of(request.max_tokens, options.num_predict, "max_tokens", "num_predict")
    if limit is not None:
        fields["max_tokens"] = max(limit, -1)
    for name in _SAME_NAMES:
        value = _one_of(getattr(request, name, None), getattr(options, name), name, name)
        if value is not None:
            fields[name] = value
    stops = _one_of(_stop_sequences(request.stop), _stop_sequences(options.stop), "stop", "stop")
    if stops:
        fields["stop"] = stops
    return {**fields, "sampling_defaults": API_DEFAULTS}


def json_schema(request: GenerationFields) -> msgspec.Raw | None:
    """Return the schema that ``format`` demands (for ``json``, the schema of any object), or None; raises ``invalid_request``."""
    given = bytes(request.format)
    if given in (b"", b"null", b'""'):
        return None
    if given == b'"json"':
        return ANY_OBJECT
    if given[:1] != b"{":
        raise invalid('`format` must be "json" or a JSON schema', "format")
    return request.format


ANY_OBJECT: Final = msgspec.Raw(b'{"type":"object"}')


def _stop_sequences(stop: str | list[str] | None) -> list[str] | None:
    if stop is None:
        return None
    return [each for each in ([stop] if isinstance(stop, str) else stop) if each]


def _one_of(top: Any, option: Any, top_name: str, option_name: str) -> Any:
    if top is not None and option is not None and top != option:
        raise invalid(f"`{top_name}` and `options.{option_name}` differ: send one", top_name)
    return option if top is None else top
