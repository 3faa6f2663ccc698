"""The grammar that a request's answer must follow, for the library's guidance. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from workers.engines.http_errors import EngineHttpError
from workers.engines.oga_server.request import OgaRequest, field_error
from workers.engines.oga_server.tools.formats import ToolCallFormat
from workers.engines.oga_server.tools.grammar import AnswerGrammar

MAX_COUNT: Final = 10_000
"""The largest count of items in a schema: a grammar has a rule for each. A million cost 16 s and 800 MB, and are refused then."""
_COUNTS: Final = ("minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties")

_DETAILS: Final = re.compile(r"\n +1 \||<state>")
"""Where the library begins to quote the grammar, or its own state."""
_MAX_REASON_LENGTH: Final = 300


class Guidance(NamedTuple):
    """A grammar."""

    grammar: str
    field: str
    """The request's field that asks for it."""


def guidance_of(request: OgaRequest, form: ToolCallFormat | None, special_tokens: Mapping[str, int]) -> Guidance | None:
    """Return the grammar of a request, None if its answer may be any text; raises :class:`EngineHttpError`.

    ``form``: how the model writes calls.  ``special_tokens``: its markers that are special tokens, and their numbers.
    """
    if request.offered_tools and form is None:
        raise field_error("tools", "the chat template of this model takes no tools in a form that is known here")
    schema = request.answer_schema
    forced = request.must_call and form is not None
    if schema is None and not forced:
        return None
    field = "tools" if forced else "response_format"
    check_counts([*request.callable_tools.values(), schema], field)
    grammar = AnswerGrammar()
    if schema is not None and not forced:
        grammar.allow_json(schema)
    if form is not None and request.callable_tools:
        grammar.allow_calls(form, request.callable_tools, special_tokens, several=request.may_call_several)
    return Guidance(grammar.text(), field)


def guidance_error(problem: Exception, field: str) -> EngineHttpError:
    """Return what the library says of a grammar as the refusal of the request's field, without the grammar itself."""
    reason = " ".join(_DETAILS.split(str(problem), maxsplit=1)[0].split())[:_MAX_REASON_LENGTH]
    return field_error(field, f"ONNX Runtime GenAI cannot force an answer of this form: {reason}")


def check_counts(schemas: Iterable[Any], field: str) -> None:
    """Raise :class:`EngineHttpError` for schemas that count further than a grammar can."""
    unread: list[Any] = list(schemas)
    while unread:
        part = unread.pop()
        if isinstance(part, dict):
            for name in _COUNTS:
                if isinstance(part.get(name), int | float) and part[name] > MAX_COUNT:
                    raise field_error(field, f"`{name}` may be at most {MAX_COUNT} in a schema that forces an answer")
            unread += part.values()
        elif isinstance(part, list):
            unread += part
