"""The six documented sampling defaults, with their bounds and values. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from protocol.failures import invalid

SamplingValue = bool | int | float
TOKEN_LIMIT_FIELDS: Final = ("max_completion_tokens", "max_tokens", "n_predict")
"""Names of the answer's token limit in requests."""
_MOST: Final = 2**31 - 1
_LARGEST_SHOWN: Final = 1e300
_MAX_LENGTH_HELP: Final = "most tokens of an answer; until it is set, only the context limits a chat"


class SamplingParam(NamedTuple):
    """One sampling default. Its type is that of its documented value."""

    default: SamplingValue
    least: float
    most: float
    help: str

    @property
    def expected(self) -> str:
        """Its allowed values, for a message."""
        if isinstance(self.default, bool):
            return "true or false"
        kind = "a whole number" if isinstance(self.default, int) else "a number"
        return f"{kind} from {self.least:.15g} to {self.most:.15g}"

    def checked(self, name: str, value: Any) -> SamplingValue:
        """Return the value in its type; raises ``invalid_request`` naming the parameter."""
        if isinstance(self.default, bool):
            if isinstance(value, bool):
                return value
        elif not isinstance(value, bool) and isinstance(value, int | float) and self.least <= value <= self.most:
            if isinstance(self.default, float):
                return float(value)
            if value == math.floor(value):
                return int(value)
        raise invalid(f"`{name}` must be {self.expected}, not {_in_words(value)}", name)


def _param(default: SamplingValue, about: str, least: int | None = None, most: int | None = None) -> Meta:
    return Meta(ge=least, le=most, description=about, extra={"default": default})


class SamplingChange(msgspec.Struct, forbid_unknown_fields=True):
    """Values to set. Null resets a value, and missing ones stay."""

    temperature: (
        Annotated[float, _param(0.7, "randomness: higher is more random, 0 always takes the likeliest token", 0, 2)]
        | UnsetType
        | None
    ) = UNSET
    top_p: (
        Annotated[
            float, _param(0.95, "only the likeliest tokens up to this cumulative probability are considered", 0, 1)
        ]
        | UnsetType
        | None
    ) = UNSET
    top_k: Annotated[int, _param(50, "number of likeliest tokens to consider; 0: all", 0, _MOST)] | UnsetType | None = (
        UNSET
    )
    min_length: Annotated[int, _param(0, "fewest tokens of an answer", 0, _MOST)] | UnsetType | None = UNSET
    max_length: Annotated[int, _param(2048, _MAX_LENGTH_HELP, 1, _MOST)] | UnsetType | None = UNSET
    do_sample: Annotated[bool, _param(True, "false: always take the likeliest token")] | UnsetType | None = UNSET


def _declared(hint: Any) -> SamplingParam:
    meta: Meta = get_args(hint)[0].__metadata__[0]
    return SamplingParam((meta.extra or {})["default"], meta.ge or 0, meta.le or 0, meta.description or "")


SAMPLING_PARAMS: Final = {
    name: _declared(hint) for name, hint in get_type_hints(SamplingChange, include_extras=True).items()
}
"""The parameters by name, in the documents' order."""


def check_params(given: Mapping[str, Any]) -> dict[str, SamplingValue | None]:
    """Return the given values, checked; None resets a parameter.

    Raises ``invalid_request`` for an unknown name, a wrong type or a value out of bounds.
    """
    found: dict[str, SamplingValue | None] = {}
    for name, value in given.items():
        param = SAMPLING_PARAMS.get(name)
        if param is None:
            shown = name if name.isprintable() and len(name) <= 80 else "a field"
            raise invalid(f"{shown} is not a generation parameter; there are: {', '.join(SAMPLING_PARAMS)}", shown)
        found[name] = None if value is None else param.checked(name, value)
    return found


def apply_change(
    current: Mapping[str, SamplingValue], change: Mapping[str, SamplingValue | None]
) -> dict[str, SamplingValue]:
    """Return what is set after a change, in the documents' order; raises ``invalid_request`` for contradicting values."""
    merged = {**current, **change}
    kept = {name: value for name in SAMPLING_PARAMS if (value := merged.get(name)) is not None}
    whole = effective_params(kept)
    if whole["min_length"] > whole["max_length"]:
        param = "min_length" if change.get("min_length") is not None else "max_length"
        reason = f"`min_length` ({whole['min_length']}) must not be more than `max_length` ({whole['max_length']})"
        raise invalid(reason, param)
    return kept


def effective_params(values: Mapping[str, SamplingValue]) -> dict[str, SamplingValue]:
    """Return all six defaults: the ones that were set, and the documented values of the others."""
    return {name: values.get(name, param.default) for name, param in SAMPLING_PARAMS.items()}


def _in_words(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        # An integer of JSON may have more digits than a float can hold.
        return "a number far out of range" if abs(value) >= _LARGEST_SHOWN else f"{value:.15g}"
    words: dict[type, str] = {str: "a string", list: "a list", dict: "an object"}
    return words.get(type(value), "null")
