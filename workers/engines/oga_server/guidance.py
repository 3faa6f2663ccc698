"""The grammar that a request's answer must follow, for the library's guidance. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from workers.engines.oga_server.request import OgaRequest, field_error
from workers.engines.oga_server.tools.formats import ToolCallFormat
from workers.engines.oga_server.tools.grammar import AnswerGrammar


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
    grammar = AnswerGrammar()
    if schema is not None and not forced:
        grammar.allow_json(schema)
    if form is not None and request.callable_tools:
        grammar.allow_calls(form, request.callable_tools, special_tokens, several=request.may_call_several)
    return Guidance(grammar.text(), "tools" if forced else "response_format")
