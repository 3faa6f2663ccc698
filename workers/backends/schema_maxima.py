"""Removes large maxima from a request's schemas: answers come nowhere near them, but an engine may make a rule for each repetition. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from protocol.models.grammar_limits import SCHEMA_FIELDS, is_large_maximum

_MAY_HAVE_ONE: Final = (re.compile(b'"max'), re.compile(rb"\\u"))
"""Part of the name of every maximum, even with escaped letters: one search for both texts takes several times as long."""


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
