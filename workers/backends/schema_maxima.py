"""Removes large maxima from the schemas of a request: no answer comes near them, and an engine may make a rule for each repetition. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from protocol.models.request_limits import is_large_maximum

SCHEMA_FIELDS: Final = ("json_schema", "response_format", "tools")
_MAY_HAVE_ONE: Final = re.compile(rb'"max(Length|Items)"|\\u')


def drop_large_maxima(fields: dict[str, msgspec.Raw]) -> bool:
    """Remove them from the schemas in ``fields``; return whether there were any."""
    changed = False
    for name in SCHEMA_FIELDS:
        raw = fields.get(name)
        if raw is not None and _MAY_HAVE_ONE.search(raw):
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
