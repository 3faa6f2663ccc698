"""The grammar that a request's answer must follow, for the library's guidance. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from workers.engines.http_server import EngineHttpError
from workers.engines.oga_server.request import OgaRequest, field_error
from workers.engines.oga_server.tools.grammar import AnswerGrammar
from workers.engines.oga_server.tools.schema_limits import schema_problem
from workers.tool_calls.formats import ToolCallFormat

_DETAILS: Final = re.compile(r"\n +1 \||<state>")
"""Where the library begins to quote the grammar or its own state."""
_MAX_REASON_LENGTH: Final = 300


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
