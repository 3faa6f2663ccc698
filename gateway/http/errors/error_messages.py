"""Rewrites msgspec's messages about a client's mistakes with JSON's names of types. Pure."""

from __future__ import annotations

import re
from typing import Final

_TYPES: Final = {
    "int": "integer",
    "float": "number",
    "str": "string",
    "bytes": "string",
    "bool": "boolean",
    "dict": "object",
    "list": "array",
    "None": "null",
}
_QUOTED_TYPES: Final = re.compile(r"`(\w+(?: \| \w+)*)`")


def describe_type_error(text: str) -> str:
    """Return msgspec's complaint with JSON's names: ``expected integer or null, got string``."""
    text = _QUOTED_TYPES.sub(lambda found: _json_type_names(found[1].split(" | ")), text)
    return text[:1].lower() + text[1:]


def _json_type_names(types: list[str]) -> str:
    names = dict.fromkeys(_TYPES.get(each, each) for each in types)
    if "number" in names:
        names.pop("integer", None)  # an integer is a number
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
