"""Limits on the size and depth of grammars, schemas and chat templates' variables. Pure.

An engine compiles a grammar in its only loop, before it looks at any other request, and recurses into nested parts. A
large grammar stops all requests of the model, and a deeply nested one ends the process. docs/engines/llamacpp.md says
what each costs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from protocol.failures import DECODE_ERRORS, invalid
from protocol.requests.grammar_possibilities import ENDLESS, in_grammar, in_schema

MAX_DEPTH: Final = 100
"""Nesting of groups in a grammar or a pattern, of a JSON schema, and of ``chat_template_kwargs``."""
MAX_ALTERNATIVES: Final = 1_000
"""``|`` of a grammar or a pattern; entries of all ``enum``, ``anyOf``, ``oneOf``, ``allOf`` and lists of ``type``
of a request's schemas together. An engine compares the possible ones with each other and with its whole vocabulary."""
MAX_OPTIONAL_PARTS: Final = 500
"""``?`` and ``*`` of a grammar, or of all patterns of a request's schemas: the work may grow with their square."""
MAX_POSSIBILITIES: Final = 10_000
"""See :mod:`protocol.requests.grammar_possibilities`; for a request's tools together."""
MAX_REPETITIONS: Final = 20_000
"""Sum of the repetition counts of a grammar, or of a request's schemas (``maxLength``, ``{0,20}`` of a ``pattern``, …)."""
MAX_REPEATED_CHARACTERS: Final = 500_000
"""Characters of what is repeated in a grammar, or in all patterns of a request's schemas, times how often: an engine writes all of them out."""
MAX_REPEATED_GROUP_CHARACTERS: Final = 50_000
"""The same of groups in patterns: the work grows with the square."""
MAX_RANGE_DIGITS: Final = 20_000
"""Digits in all ``minimum`` and ``maximum`` of a request's schemas: the rules for one pair grow with their square."""
LARGE_MAXIMUM: Final = 10_000
"""An engine does not get a ``maxLength`` or ``maxItems`` from this value on (``workers/backends/requests/generation_request.py``)."""
MAX_PROPERTIES: Final = 500
"""``properties`` of one object of a schema: the work grows with the square of the number of optional ones."""
MAX_OPTIONAL_PAIRS: Final = 500_000
"""Squares of the numbers of optional properties, of all objects of a request's schemas together."""
MAX_CONSTANT_CHARACTERS: Final = 16_384
"""Characters in one value of ``const`` or ``enum``: the work may grow with their square."""
MAX_PATTERN_CHARACTERS: Final = 16_384
"""Characters in all patterns of a request's schemas together."""

SCHEMA_FIELDS: Final = ("json_schema", "response_format", "tools")
"""Fields of a request with JSON schemas in them."""
GRAMMAR_FIELDS: Final = ("grammar", *SCHEMA_FIELDS)
"""Fields from which an engine makes a grammar."""
_ALTERNATIVES: Final = frozenset({"enum", "anyOf", "oneOf", "allOf", "type"})
_COUNTS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength"})
_RANGES: Final = (("minItems", "maxItems"), ("minLength", "maxLength"))
_MAXIMA: Final = frozenset({"maxItems", "maxLength"})
_RANGE_ENDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SIZED: Final = _ALTERNATIVES | _COUNTS | _RANGE_ENDS | {"properties", "pattern"}
_CONTAINERS: Final = (dict, list)
_CHOICES: Final = ("anyOf", "oneOf")
_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"?|\[(?:\\.|[^\]\\])*\]?|#[^\n]*|[A-Za-z-][\w-]*|\d+|[()|?*]', re.DOTALL)
"""Parts of a grammar. An unclosed text or class of characters goes to the end, so that each character is read once."""
_PATTERN_TOKEN: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]?|[()|?*]|\{[^{}()|]*\}", re.DOTALL)
_DIGITS: Final = re.compile(r"\d+")
_OTHER_GRAMMAR: Final = "%llguidance"
"""llama-server takes a grammar with this beginning for one in another language, in which a short text may block it forever."""
_LARGE_NUMBER_DIGITS: Final = 9
_MULTIPLYING: Final = (re.compile(rb"\$ref"), re.compile(b"pattern"), re.compile(rb"\\u"))
"""Keywords that can multiply the alternatives of a schema, even with escaped letters.

Three searches: one search for three texts takes twice the time.
"""


def check_compiled(name: str, shown: str, raw: msgspec.Raw) -> None:
    """Raise ``invalid_request`` if a grammar, or JSON with schemas in it, is too large.

    ``shown``: its name in messages.
    """
    value = decoded(shown, raw)
    if name != "grammar":
        sizes = _Sizes(shown)
        sizes.add_schemas(value)
        sizes.check()
        if any(text.search(raw) for text in _MULTIPLYING):
            _check_possibilities(shown, sum(map(in_schema, _schemas(name, value))))
    elif isinstance(value, str):
        if value.startswith(_OTHER_GRAMMAR):
            raise invalid(f"`{shown}` must be in GBNF, not in llguidance's form", shown)
        sizes = _Sizes(shown)
        sizes.add_text(_TOKEN.finditer(value))
        sizes.check()
        _check_possibilities(shown, in_grammar(value))


def check_size(name: str, what: str, size: int, most: int) -> None:
    """Raise ``invalid_request`` for a field that has more than ``most`` of something."""
    if size > most:
        raise invalid(f"`{name}` has {size} {what}; the limit is {most}", name)


def decoded(name: str, raw: msgspec.Raw) -> Any:
    """Return a field's value; raises ``invalid_request`` for JSON with a number that is too large to be read."""
    try:
        return msgspec.json.decode(raw)
    except DECODE_ERRORS as problem:
        raise invalid(f"`{name}` cannot be read: {problem}", name) from None


def is_large_maximum(key: str, value: Any) -> bool:
    """Return whether a field of a schema is a maximum that no engine gets.

    Some tools of coding agents have one of half a million.
    """
    return key in _MAXIMA and isinstance(value, int | float) and value >= LARGE_MAXIMUM


class _Sizes:
    """Counts what an engine builds from a field, without recursion.

    Agents send their tools with every request, so a schema is read once.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._depth = self._alternatives = self._optional = self._repetitions = self._characters = 0
        self._digits = self._repeated = self._repeated_in_groups = 0
        self._optional_pairs = self._most_properties = 0
        self._merged: list[tuple[int, int]] = []
        """For each object that an engine merges: its optional properties, and the references that lead to more of them."""

    def check(self) -> None:
        """Raise ``invalid_request`` for what is beyond a limit."""
        check_size(self._name, "levels of nesting", self._depth, MAX_DEPTH)
        check_size(self._name, "alternatives", self._alternatives, MAX_ALTERNATIVES)
        check_size(self._name, "optional parts", self._optional, MAX_OPTIONAL_PARTS)
        check_size(self._name, "repetitions", self._repetitions, MAX_REPETITIONS)
        check_size(self._name, "characters in what it repeats", self._repeated, MAX_REPEATED_CHARACTERS)
        groups = "characters in the groups that its patterns repeat"
        check_size(self._name, groups, self._repeated_in_groups, MAX_REPEATED_GROUP_CHARACTERS)
        check_size(self._name, "digits in its `minimum` and `maximum`", self._digits, MAX_RANGE_DIGITS)
        pairs = self._optional_pairs
        for direct, references in self._merged:
            optional = direct + references * self._most_properties
            check_size(self._name, "optional properties in one `allOf`", optional, MAX_PROPERTIES)
            pairs += optional**2
        check_size(self._name, "pairs of optional properties in its objects", pairs, MAX_OPTIONAL_PAIRS)

    def add_text(self, tokens: Iterable[re.Match[str]]) -> None:
        """Count the tokens of a grammar or a pattern."""
        outer: list[int] = []
        """For each open group, the characters before it in the group around it."""
        written = 0
        """Characters of the present group with its repetitions written out; a class of characters is one."""
        repeatable, end, is_group, is_class = 1, 0, False, False
        """The characters that a repetition would repeat: their number, their end, and their kind."""
        for match in tokens:
            token = match[0]
            written += match.start() - end
            if token == "(":  # noqa: S105 - of a grammar, not a password
                outer.append(written)
                written = 0
                self._depth = max(self._depth, len(outer))
            elif token == ")":  # noqa: S105
                repeatable, is_group, is_class = written, True, False
                written += outer.pop() if outer else 0
            elif token == "|":  # noqa: S105
                self._alternatives += 1
            elif token in ("?", "*"):
                self._optional += 1
            elif token[0] == "{" or token.isdigit():
                count = sum(int(digits[:_LARGE_NUMBER_DIGITS]) for digits in _DIGITS.findall(token))
                self._repetitions += count
                if token[0] == "{" and match.start() != end:
                    repeatable, is_group, is_class = 1, False, False
                self._repeated += count * repeatable
                self._repeated_in_groups += count * repeatable * (is_group and token[0] == "{")
                written += 0 if is_class else count * repeatable
            else:
                is_group, is_class = False, token[0] == "["
                repeatable = len(token) if token[0] in '"[' else 1
                written += 1 if is_class else repeatable
            end = match.end()

    def add_schemas(self, value: Any) -> None:
        """Count JSON with schemas in it.

        Raises for an object with too many properties, or a minimum above its maximum.
        """
        left: list[tuple[Any, int]] = [(value, 1)] if isinstance(value, _CONTAINERS) else []
        while left:
            node, depth = left.pop()
            self._depth = max(self._depth, depth)
            if isinstance(node, dict):
                self._add_schema(node)
            left += [
                (each, depth + 1)
                for each in (node.values() if isinstance(node, dict) else node)
                if isinstance(each, _CONTAINERS)
            ]

    def _add_schema(self, schema: Mapping[str, Any]) -> None:
        if not _MAXIMA.isdisjoint(schema):
            _check_ranges(self._name, schema)
        _check_constants(self._name, schema)
        for key, value in schema.items():
            if key not in _SIZED or (key == "type" and isinstance(value, str)):
                continue
            if key in _ALTERNATIVES and isinstance(value, list):
                self._alternatives += len(value)
                if key == "allOf":
                    self._add_merged(value)
            elif key in _COUNTS and isinstance(value, int | float) and not is_large_maximum(key, value):
                self._repetitions += int(min(max(value, 0), MAX_REPETITIONS + 1))
            elif key in _RANGE_ENDS and isinstance(value, int | float):
                self._digits += len(str(value))
            elif key == "properties" and isinstance(value, dict):
                check_size(self._name, "properties in one object", len(value), MAX_PROPERTIES)
                self._most_properties = max(self._most_properties, len(value))
                self._optional_pairs += len(value.keys() - _texts(schema.get("required"))) ** 2
            elif key == "pattern" and isinstance(value, str):
                self._characters += len(value)
                check_size(self._name, "characters in its patterns", self._characters, MAX_PATTERN_CHARACTERS)
                self.add_text(_PATTERN_TOKEN.finditer(value))

    def _add_merged(self, entries: list[Any]) -> None:
        """Count an ``allOf``: an engine makes one object of it, in which the properties of all choices are optional."""
        choices = [
            each for entry in entries if isinstance(entry, dict) for name in _CHOICES for each in _list(entry.get(name))
        ]
        found = [
            each["properties"]
            for each in choices
            if isinstance(each, dict) and isinstance(each.get("properties"), dict)
        ]
        references = sum(isinstance(each, dict) and "$ref" in each for each in choices)
        self._merged.append((sum(map(len, found)), references))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _texts(value: Any) -> set[str]:
    return {each for each in _list(value) if isinstance(each, str)}


def _check_constants(name: str, schema: Mapping[str, Any]) -> None:
    for value in (schema.get("const"), *_list(schema.get("enum"))):
        if isinstance(value, str | dict | list):
            size = len(value) if isinstance(value, str) else len(msgspec.json.encode(value))
            check_size(name, "characters in one value of `const` or `enum`", size, MAX_CONSTANT_CHARACTERS)


def _check_ranges(name: str, schema: Mapping[str, Any]) -> None:
    """Refuse a minimum above its maximum: an engine would take the difference as an unsigned count, and never end."""
    for least, most in _RANGES:
        low, high = schema.get(least), schema.get(most)
        if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
            raise invalid(f"`{name}` has a schema whose `{least}` ({low}) is larger than its `{most}` ({high})", name)


def _check_possibilities(name: str, places: int) -> None:
    if places > MAX_POSSIBILITIES:
        amount = "endless" if places >= ENDLESS else str(places)
        raise invalid(
            f"`{name}` allows {amount} continuations of one beginning; the limit is {MAX_POSSIBILITIES}: nest fewer alternatives, "
            "optional repetitions and references within each other",
            name,
        )


def _schemas(name: str, value: Any) -> list[Any]:
    """Return the schemas of a field, each with everything that it refers to."""
    if name == "tools":
        functions = (
            [each.get("function") for each in value if isinstance(each, dict)] if isinstance(value, list) else []
        )
        return [each.get("parameters") for each in functions if isinstance(each, dict)]
    if name == "response_format" and isinstance(value, dict):
        wanted = value.get("json_schema")
        return [value.get("schema"), wanted.get("schema") if isinstance(wanted, dict) else None]
    return [value] if name == "json_schema" else []
