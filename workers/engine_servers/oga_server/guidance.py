"""The grammar that a request's answer must follow, for the library's guidance, and which schemas are small enough for it. Pure.

The library compiles a grammar while it holds Python's lock. A schema of a hundred bytes can make this endless in time
and memory: the engine then answers nothing, not even whether it is healthy. docs/engines/oga.md has measurements;
within these limits it takes about a second.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from workers.engine_servers.http_server import EngineHttpError
from workers.engine_servers.oga_server.grammar import AnswerGrammar
from workers.engine_servers.oga_server.request import OgaRequest, field_error
from workers.tool_calls.formats import ToolCallFormat

_DETAILS: Final = re.compile(r"\n +1 \||<state>")
"""Where the library begins to quote the grammar or its own state."""
_MAX_REASON_LENGTH: Final = 300
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


class Guidance(NamedTuple):
    """A grammar."""

    grammar: str
    field: str
    """The request's field that asks for it."""


def guidance_of(request: OgaRequest, form: ToolCallFormat | None, special_tokens: Mapping[str, int]) -> Guidance | None:
    """Return the grammar of a request, None if its answer may be any text; raises :class:`EngineHttpError`.

    ``form``: how the model writes calls. ``special_tokens``: its markers that are special tokens, with their numbers.
    """
    if request.offered_tools and form is None:
        raise field_error("tools", "the chat template of this model takes no tools in a form that is known here")
    schema = request.answer_schema
    forced = request.must_call and form is not None
    if schema is None and not forced:
        return None
    field = "tools" if forced else "response_format"
    if problem := schema_problem([*([] if schema is None else [schema]), *request.callable_tools.values()]):
        raise field_error(field, f"ONNX Runtime GenAI cannot force an answer of this form: {problem}")
    grammar = AnswerGrammar()
    if schema is not None and not forced:
        grammar.allow_json(schema)
    if form is not None and request.callable_tools:
        grammar.allow_calls(form, request.callable_tools, special_tokens, several=request.may_call_several)
    return Guidance(grammar.text(), field)


def guidance_error(problem: Exception, field: str) -> EngineHttpError:
    """Return what the library says about a grammar as the refusal of the request's field, without the grammar itself."""
    reason = " ".join(_DETAILS.split(str(problem), maxsplit=1)[0].split())[:_MAX_REASON_LENGTH]
    return field_error(field, f"ONNX Runtime GenAI cannot force an answer of this form: {reason}")
