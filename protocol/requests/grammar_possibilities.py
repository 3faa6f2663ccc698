"""The most continuations that a grammar or a schema may have at one place of a text, not counting recursion. Pure.

An engine keeps a list of them, and compares each with its whole vocabulary for each token. References multiply them:
400 alternatives that begin alike and go on with a rule of 400 make 160,000.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

MAX_LEVELS: Final = 150
"""Limit of the nesting of references and groups together: anything deeper counts as endless."""
ENDLESS: Final = 10**9

_GRAMMAR: Final = re.compile(
    r'"(?:\\.|[^"\\])*"?|\[(?:\\.|[^\]\\])*\]?|#[^\n]*|[\w-]+\s*::=|[\w-]+|\{[^}]*\}?|[()|?*+.]', re.DOTALL
)
_PATTERN: Final = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]?|\{[\d, ]*\}|.", re.DOTALL)
_SUM_OF: Final = ("anyOf", "oneOf", "allOf")


class _Element(NamedTuple):
    """A text, a class, a reference to a rule or a group, and how often it comes."""

    rule: str = ""
    group: list[list[_Element]] | None = None
    optional: bool = False
    most: int = 1


class _Reach(NamedTuple):
    places: int
    empty: bool
    """Whether it may be left out."""


_ONE: Final = _Reach(1, empty=False)
_TOO_DEEP: Final = _Reach(ENDLESS, empty=False)


def in_grammar(text: str) -> int:
    """Return the most continuations of a grammar in GBNF."""
    return _Rules(_rules(match.group() for match in _GRAMMAR.finditer(text))).most()


def in_pattern(text: str) -> int:
    """Return the most continuations of a regular expression."""
    tokens = (match.group() for match in _PATTERN.finditer(text))
    return _Rules(_rules(token if token[0] in "()|?*+{[" else '"' for token in tokens)).most()


def _rules(tokens: Iterable[str]) -> dict[str, list[list[_Element]]]:
    """Read rules, or the alternatives of the nameless one. What makes no sense is left for the engine to refuse."""
    rules: dict[str, list[list[_Element]]] = {"": [[]]}
    open_groups = [rules[""]]
    for token in tokens:
        last = open_groups[-1][-1]
        if token.endswith("::="):
            rules[token[:-3].rstrip()] = [[]]
            open_groups = [rules[token[:-3].rstrip()]]
        elif token == "(":  # noqa: S105 - of a grammar, not a password
            open_groups.append([[]])
        elif token == ")":  # noqa: S105
            if len(open_groups) > 1:
                group = open_groups.pop()
                open_groups[-1][-1].append(_Element(group=group))
        elif token == "|":  # noqa: S105
            open_groups[-1].append([])
        elif token[0] in "?*+{":
            if last:
                last[-1] = _repeated(last[-1], token)
        elif token[0] != "#":
            last.append(_Element(rule="" if token[0] in '"[.' else token))
    return rules


def _repeated(element: _Element, quantifier: str) -> _Element:
    if quantifier[0] != "{":
        return element._replace(optional=element.optional or quantifier != "+")
    numbers = [int(digits[:9]) for digits in re.findall(r"\d+", quantifier)] or [0]
    if numbers[0] > numbers[-1]:  # an engine takes 2 - 5 of {5,2} as an unsigned count
        return element._replace(optional=True, most=ENDLESS)
    return element._replace(optional=element.optional or not numbers[0], most=max(1, numbers[-1]))


class _Rules:
    def __init__(self, rules: dict[str, list[list[_Element]]]) -> None:
        self._rules = rules
        self._known: dict[str, _Reach] = {}

    def most(self) -> int:
        return max(self._rule(name, 0).places for name in self._rules)

    def _rule(self, name: str, level: int) -> _Reach:
        if name not in self._known and name in self._rules:
            self._known[name] = _ONE  # within itself
            self._known[name] = self._alternatives(self._rules[name], level + 1)
        return self._known.get(name, _ONE)

    def _alternatives(self, alternatives: list[list[_Element]], level: int) -> _Reach:
        if level > MAX_LEVELS:
            return _TOO_DEEP
        reaches = [self._sequence(each, level) for each in alternatives]
        places = sum(each.places for each in reaches)
        return _Reach(min(places, ENDLESS), any(each.empty for each in reaches))

    def _sequence(self, elements: list[_Element], level: int) -> _Reach:
        optional, required, empty = 0, 1, True
        for element in elements:
            places, nothing = self._element(element, level)
            # The engine tries a repetition of something that may be empty in many orders: two nested ones take seconds
            # for 15 each.
            if nothing:
                places *= element.most**2
            elif element.optional:
                places *= element.most
            if nothing or element.optional:
                optional += places
            else:
                required, empty = max(required, places), False
        return _Reach(min(optional + required, ENDLESS), empty)

    def _element(self, element: _Element, level: int) -> _Reach:
        if element.group is not None:
            return self._alternatives(element.group, level + 1)
        return self._rule(element.rule, level) if element.rule else _ONE


def in_schema(schema: Any) -> int:
    """Return the most continuations of JSON that a schema allows; its references are looked up in itself."""
    return _Schema(schema).most(schema, 0)


class _Schema:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, int] = {}
        """Identity of an object or a list → its result, because many references may lead to one."""
        self._targets: dict[int, int] = {}
        """The same for the targets of references."""

    def most(self, node: Any, level: int) -> int:
        if level > MAX_LEVELS:
            return ENDLESS
        if not isinstance(node, dict | list):
            return 1
        if id(node) not in self._known:
            self._known[id(node)] = self._computed(node, level)
        return self._known[id(node)]

    def _computed(self, node: dict[str, Any] | list[Any], level: int) -> int:
        if isinstance(node, list):
            return max((self.most(each, level + 1) for each in node), default=1)
        alternatives, inside = 0, 0
        for key, value in node.items():
            if key in _SUM_OF and isinstance(value, list):
                alternatives += sum(self.most(each, level + 1) for each in value)
            elif key in ("enum", "type") and isinstance(value, list):
                alternatives += len(value)
            elif key == "$ref" and isinstance(value, str):
                alternatives += self._target(value, level)
            elif key == "pattern" and isinstance(value, str):
                inside = max(inside, in_pattern(value))
            else:
                inside = max(inside, self.most(value, level + 1) if isinstance(value, dict | list) else 1)
        return min(ENDLESS, max(1, alternatives + inside))

    def _target(self, reference: str, level: int) -> int:
        node = self._found(reference)
        for _ in range(MAX_LEVELS):
            if not (isinstance(node, dict) and isinstance(node.get("$ref"), str)):
                break
            node = self._found(node["$ref"])
        else:
            return ENDLESS  # an engine would follow it forever, and overflow its stack
        if id(node) not in self._targets:
            self._targets[id(node)] = 1  # within itself
            self._targets[id(node)] = self.most(node, level + 1)
        return self._targets[id(node)]

    def _found(self, reference: str) -> Any:
        node = self._root if reference.startswith("#/") else None
        for part in reference.split("/")[1:]:
            node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, dict) else None
        return node
