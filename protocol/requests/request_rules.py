"""How the operator's configuration changes the requests of a model: fields to set, to drop and to add, a system prompt."""

from __future__ import annotations

import difflib
from typing import Any, Final, NamedTuple

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
"""Fields that no rule may change: the client's question, and what the gateway reads to route and answer it."""


class FieldKind(NamedTuple):
    """The allowed values of a request field."""

    words: str
    type: Any


_NUMBER: Final = FieldKind("a number", int | float)
_WHOLE: Final = FieldKind("a whole number", int)
_SWITCH: Final = FieldKind("true or false", bool)
_TEXT: Final = FieldKind("a text", str)
_TABLE: Final = FieldKind("a table", dict[str, Any])
_TABLES: Final = FieldKind("a list of tables", list[dict[str, Any]])
_TEXTS: Final = FieldKind("a text or a list of texts", str | list[str])
_TEXT_OR_TABLE: Final = FieldKind("a text or a table", str | dict[str, Any])
FIELD_KINDS: Final[dict[str, FieldKind]] = {
    **dict.fromkeys(("temperature", "top_p", "min_p", "typical_p", "top_n_sigma", "repeat_penalty"), _NUMBER),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "dynatemp_range", "dynatemp_exponent"), _NUMBER),
    **dict.fromkeys(("xtc_probability", "xtc_threshold", "mirostat_tau", "mirostat_eta", "dry_multiplier"), _NUMBER),
    **dict.fromkeys(("dry_base", "cfg_scale", "guidance", "eta", "flow_shift", "strength"), _NUMBER),
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "n_predict", "max_length", "min_length", "seed"), _WHOLE),
    **dict.fromkeys(("top_k", "repeat_last_n", "mirostat", "dry_allowed_length", "dry_penalty_last_n"), _WHOLE),
    **dict.fromkeys(("n_keep", "n_discard", "min_keep", "n_indent", "t_max_predict_ms", "steps", "top_n"), _WHOLE),
    **dict.fromkeys(("clip_skip", "reasoning_budget_tokens"), _WHOLE),
    **dict.fromkeys(("ignore_eos", "cache_prompt", "parallel_tool_calls", "add_generation_prompt"), _SWITCH),
    **dict.fromkeys(("do_sample", "parse_tool_calls", "reasoning_in_content", "post_sampling_probs"), _SWITCH),
    **dict.fromkeys(("grammar", "reasoning_format", "reasoning_effort", "user", "size", "negative_prompt"), _TEXT),
    **dict.fromkeys(("sample_method", "scheduler", "service_tier", "output_format", "instruction"), _TEXT),
    **dict.fromkeys(("chat_template_kwargs", "json_schema", "metadata"), _TABLE),
    **dict.fromkeys(("tools", "lora"), _TABLES),
    **dict.fromkeys(("stop", "samplers", "dry_sequence_breakers"), _TEXTS),
    **dict.fromkeys(("tool_choice", "response_format"), _TEXT_OR_TABLE),
    "logit_bias": FieldKind("a table or a list", dict[str, Any] | list[Any]),
}
"""Fields that our engines read. A program of the operator's own may read others."""
_SIMILAR: Final = 0.8


def field_problem(name: str, value: object) -> str:
    """Return what is wrong with a field to be set in requests; empty: nothing, or the field is unknown here."""
    kind = FIELD_KINDS.get(name)
    if kind is None:
        close = difflib.get_close_matches(name.lower(), FIELD_KINDS, 1, _SIMILAR)
        return f"no engine reads this field; did you mean {close[0]}?" if close else ""
    try:
        msgspec.convert(value, kind.type)
    except msgspec.ValidationError:
        return f"expected {kind.words}"
    return ""


class RequestRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Changes to every request of a model, in the internal format: OpenAI's fields, whatever API the request came by."""

    set: dict[str, Any] = {}
    """Field → its new value, whatever the client sent."""
    drop: list[str] = []
    """Fields that are removed before others are set."""
    system_prompt: str = ""
    """System message of chats without one; empty: none."""
    defaults: dict[str, Any] = {}
    """Field → its value in requests that do not have it, after ``drop``."""

    def __bool__(self) -> bool:
        """Return whether the rules change anything."""
        return bool(self.set or self.drop or self.system_prompt or self.defaults)
