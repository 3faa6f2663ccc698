"""Which JSON schemas are small enough for the library's guidance. Pure.

The library compiles a grammar while it holds Python's lock. A schema of a hundred bytes can make this endless in time
and memory: the engine then answers nothing, not even whether it is healthy. docs/engines/oga.md has measurements;
within these limits it takes about a second.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

MAX_BYTES: Final = 65_536
"""All schemas of a request together, as JSON."""
MAX_ITEMS: Final = 10_000
"""Items of all lists together: each optional item is a rule of the grammar."""
MAX_MULTIPLE: Final = 10_000
"""Product of all ``multipleOf``, without powers of ten: it is the number of states where several meet."""
MAX_PATTERNS: Final = 8
"""``pattern`` where ``allOf`` or ``$ref`` may combine them: the library searches for a text that matches all."""


def schema_problem(schemas: Iterable[Mapping[str, Any]]) -> str:
    """Return why no grammar is made from these schemas, in words; empty if one may be."""
    schemas = list(schemas)
    if sum(len(json.dumps(schema)) for schema in schemas) > MAX_BYTES:
        return f"its schemas may have at most {MAX_BYTES} bytes of JSON"
    nodes = [node for schema in schemas for node in _objects(schema)]
    if sum(max(_number(node, "minItems"), _number(node, "maxItems")) for node in nodes) > MAX_ITEMS:
        return f"`minItems` and `maxItems` of all its lists may be at most {MAX_ITEMS} together"
    if math.prod(_coefficient(node) for node in nodes) > MAX_MULTIPLE:
        return f"the product of all its `multipleOf` may be at most {MAX_MULTIPLE}"
    combines = any("allOf" in node or ("$ref" in node and len(node) > 1) for node in nodes)
    if combines and sum(isinstance(node.get("pattern"), str) for node in nodes) > MAX_PATTERNS:
        return f"with `allOf`, or with other keywords beside `$ref`, it may have {MAX_PATTERNS} `pattern`"
    return ""


def _objects(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all JSON objects of a schema, without recursion: it may be as deeply nested as the parser of requests allows."""
    left: list[Any] = [schema]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            yield value
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def _number(node: Mapping[str, Any], keyword: str) -> float:
    """Return a keyword's number; 0 if it has none. The library decides whether it makes sense."""
    value = node.get(keyword)
    return max(0, value) if isinstance(value, int | float) else 0


def _coefficient(node: Mapping[str, Any]) -> int:
    """Return the digits of ``multipleOf`` without powers of ten, which cost nothing."""
    value = node.get("multipleOf")
    if not isinstance(value, int | float) or not math.isfinite(value):
        return 1
    digits = Decimal(str(value)).as_tuple().digits
    return max(1, int("".join(map(str, digits)).rstrip("0") or "0"))
