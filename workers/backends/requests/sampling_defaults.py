"""Sampling options of a request: its own, else the defaults that were set, else those of its API. Pure.

An API whose document has its own defaults sends them in ``sampling_defaults``. A request may also use the documents'
names for these (``max_length``, ``min_length``, ``do_sample``). Other options are left to the engine, whose command
line sets its defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from protocol.failures import invalid
from protocol.models import sampling
from protocol.models.sampling import TOKEN_LIMIT_FIELDS, SamplingValue

Fields = dict[str, msgspec.Raw]

API_DEFAULTS_FIELD: Final = "sampling_defaults"
"""Field of the internal format: documented parameter → the default of the request's API."""
_TEXT_DEFAULTS: Final[dict[str, SamplingValue]] = {"max_length": 2048}
"""The documented defaults for text completions, before any are set. The engine's command line has the others."""
_LEMONADE_FIELDS: Final = frozenset({"max_length", "min_length", "do_sample"})
_NULL: Final = msgspec.Raw(b"null")


def apply_sampling_defaults(
    endpoint: str, fields: Fields, defaults: Mapping[str, SamplingValue], names: Mapping[str, str]
) -> bool:
    """Put the sampling defaults into a request; return whether this changed it.

    A text completion has the documented default limit. Chats end by themselves, so only their context limits them.
    ``names``: documented parameter → the engine's name; parameters that the engine does not have are missing. Empty
    stop words are removed: one engine ignores them, and another one ends at once. Raises ``invalid_request`` for a
    wrong value under one of the documented names.
    """
    changed = _drop_empty_stops(fields)
    api_defaults = fields.pop(API_DEFAULTS_FIELD, _NULL)
    documented = _TEXT_DEFAULTS if endpoint == "completions" and _is_unlimited(fields) else {}
    if api_defaults != _NULL:
        defaults = {**documented, **_api_defaults(api_defaults), **defaults}
    elif documented:
        defaults = {**documented, **defaults}
    elif not defaults and _LEMONADE_FIELDS.isdisjoint(fields):
        return changed
    own = sampling.check_params(
        {name: msgspec.json.decode(fields.pop(name)) for name in _LEMONADE_FIELDS if name in fields}
    )
    given = {name for name, raw in fields.items() if raw != _NULL}
    chosen = {name: value for name, value in defaults.items() if name not in given}
    if own.get("do_sample") is False or (own.get("do_sample") is None and chosen.get("do_sample") is False):
        greedy = own.get("do_sample") is False or "temperature" not in given
        chosen |= {"temperature": 0} if greedy else {}
    chosen.pop("do_sample", None)
    chosen |= {name: value for name in ("min_length", "max_length") if (value := own.get(name)) is not None}
    if not given.isdisjoint(TOKEN_LIMIT_FIELDS):
        chosen.pop("max_length", None)
    for name, value in chosen.items():
        if name in names:
            fields[names[name]] = msgspec.Raw(msgspec.json.encode(value))
    return True


def _is_unlimited(fields: Fields) -> bool:
    return all(fields.get(name, _NULL) == _NULL for name in TOKEN_LIMIT_FIELDS)


def _api_defaults(raw: msgspec.Raw) -> dict[str, SamplingValue]:
    given = msgspec.json.decode(raw)
    if not isinstance(given, dict):
        raise invalid(f"`{API_DEFAULTS_FIELD}` must be an object", API_DEFAULTS_FIELD)
    return {name: value for name, value in sampling.check_params(given).items() if value is not None}


def _drop_empty_stops(fields: Fields) -> bool:
    """Remove empty stop words from a request; return whether there were any."""
    raw = fields.get("stop")
    if raw is None or b'""' not in bytes(raw):
        return False
    stop = msgspec.json.decode(raw)
    words = stop if isinstance(stop, list) else [stop]
    kept = [word for word in words if word != ""]
    if len(kept) == len(words):
        return False
    fields["stop"] = msgspec.Raw(msgspec.json.encode(kept))
    if not kept:
        del fields["stop"]
    return True
