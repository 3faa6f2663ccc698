"""Grammars that force the form of an answer: JSON by a schema, tool calls, or either. In llguidance's form of Lark. Pure.

Guidance is compiled into the library's wheels. It masks the tokens that cannot follow, so an answer that ends by itself
has the form. White space in JSON is fixed: if it is free, small models write nothing else up to their limit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from workers.tool_calls.formats import ToolCallFormat

_SPACING: Final = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_MORE_CALLS: Final = "{0,15}"
"""Calls after the first one. The number is bounded, because small models repeat themselves."""
ANY_OBJECT: Final[dict[str, Any]] = {"type": "object"}


class AnswerGrammar:
    """Collects the forms that an answer may have."""

    def __init__(self) -> None:
        """No form is allowed yet."""
        self._forms: list[str] = []
        self._rules: list[str] = []

    def allow_json(self, schema: Mapping[str, Any]) -> None:
        """Allow JSON by a schema."""
        self._forms.append("answer")
        self._rules.append(f"answer: {_json_rule(schema)}")

    def allow_calls(
        self,
        form: ToolCallFormat,
        tools: Mapping[str, Mapping[str, Any]],
        special_tokens: Mapping[str, int],
        *,
        several: bool,
    ) -> None:
        """Allow a call of one of ``tools`` (name → schema of its arguments), or ``several`` calls.

        ``special_tokens``: marker → its number, for markers that are special tokens; others are text.
        """
        self._forms.append("calls")
        for number, (name, schema) in enumerate(tools.items()):
            head = f'{{"name": {json.dumps(name)}, "{form.arguments_key}": '
            self._rules.append(f'call_{number}: {_literal(head)} arguments_{number} "}}"')
            self._rules.append(f"arguments_{number}: {_json_rule(schema)}")
        self._rules.append("call: " + " | ".join(f"call_{number}" for number in range(len(tools))))
        self._rules.append("calls: " + " ".join(_calls_rule(form, special_tokens, several=several)))

    def text(self) -> str:
        """Return the grammar."""
        return "\n".join([f"start: {' | '.join(self._forms)}", *self._rules, ""])


def _calls_rule(form: ToolCallFormat, special_tokens: Mapping[str, int], *, several: bool) -> Sequence[str]:
    def marker(text: str) -> str:
        return f"<[{special_tokens[text]}]>" if text in special_tokens else _literal(text)

    opener = marker(form.openers[0])
    if form.bare:
        return ["call", *([f'("; " call){_MORE_CALLS}'] if several else [])]
    closer = [marker(form.closer)] if form.closer else []
    if form.listed:
        return [opener, '"["', "call", *([f'(", " call){_MORE_CALLS}'] if several else []), '"]"', *closer]
    one = [opener, r'"\n"', "call", r'"\n"', *closer]
    return [*one, *([r'("\n"', *one, f"){_MORE_CALLS}"] if several else [])]


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _json_rule(schema: Mapping[str, Any]) -> str:
    return "%json " + json.dumps({**schema, "x-guidance": _SPACING})
