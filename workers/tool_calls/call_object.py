"""Reads one tool call, a JSON object with a name and arguments, character by character. Pure.

An object becomes a call as soon as its name is the name of a tool and its arguments have begun: they can be streamed from then
on. Until then :class:`NotACallError` says that it was something else, at the first character that cannot be JSON. Otherwise each of a
thousand openers in each other could be a call until the answer ends, and be read once more for each one before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Final

_SPACE: Final = " \t\r\n"
_ARGUMENT_KEYS: Final = ("arguments", "parameters")
_SCALAR: Final = frozenset("-+.0123456789abcdefghijklmnopqrstuvwxyzE")
_NESTED_SCALAR: Final = _SCALAR | {"N", "I"}
"""Also of NaN and Infinity."""


class NotACallError(Exception):
    """The characters are not a call, or no longer JSON."""


class CallObject:
    """One call. :meth:`feed` takes its characters from ``{`` to ``}``."""

    def __init__(self, names: Collection[str], needs_arguments: bool) -> None:
        """``names`` of the tools. ``needs_arguments``: an object with only a name is not a call."""
        self._names, self._needs_arguments = names, needs_arguments
        self._step: Callable[[str], None] = self._at_start
        self._after_string: Callable[[str], None] = self._key_ended
        self._string: list[str] = []
        self._escaped = self._quoted = False
        self._depth = 0
        self._value_due = self._in_word = False
        """Of what is nested: whether a value may begin, and whether a number or a word goes on."""
        self._key = ""
        self._name = ""
        self._early_arguments: str | None = None
        self._arguments: list[str] = []
        self.is_call = False
        """Whether it is certain that this is a call."""
        self.ended = False

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self._name

    def feed(self, character: str) -> None:
        """Take the next character; raises :class:`NotACallError`."""
        self._step(character)

    def take_arguments(self) -> str:
        """Return the part of the arguments, as JSON, that was read since the last time."""
        taken = "".join(self._arguments)
        self._arguments.clear()
        return taken

    def _at_start(self, character: str) -> None:
        if character != "{":
            raise NotACallError
        self._step = self._before_first_key

    def _before_first_key(self, character: str) -> None:
        if character == "}":
            self._end()
        else:
            self._before_key(character)

    def _before_key(self, character: str) -> None:
        if character == '"':
            self._begin_string(self._key_ended)
        elif character not in _SPACE:
            raise NotACallError

    def _begin_string(self, then: Callable[[str], None]) -> None:
        self._string, self._escaped, self._after_string = ['"'], False, then
        self._step = self._in_string

    def _in_string(self, character: str) -> None:
        self._string.append(character)
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._after_string("".join(self._string))

    def _key_ended(self, text: str) -> None:
        self._key = str(_decoded(text))
        self._step = self._before_colon

    def _before_colon(self, character: str) -> None:
        if character == ":":
            self._step = self._before_value
        elif character not in _SPACE:
            raise NotACallError

    def _before_value(self, character: str) -> None:
        if character in _SPACE:
            return
        if character == '"':
            self._begin_string(self._value_ended)
        elif character in "{[":
            if character == "{" and self._key in _ARGUMENT_KEYS and self._name and not self.is_call:
                self.is_call = True
                self._arguments.append(character)
                self._step = self._in_arguments
            else:
                self._string = [character]
                self._step = self._in_nested
                self._value_due, self._in_word = True, False
            self._depth, self._quoted, self._escaped = 1, False, False
        elif character in _SCALAR:
            self._string = [character]
            self._step = self._in_scalar
        else:
            raise NotACallError

    def _nested_ended(self, character: str) -> bool:
        """Return whether a character ends the object or list that began at depth 1."""
        if self._escaped:
            self._escaped = False
        elif self._quoted:
            self._escaped = character == "\\"
            self._quoted = character != '"'
        elif character == '"':
            self._quoted = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        return self._depth == 0

    def _in_arguments(self, character: str) -> None:
        self._arguments.append(character)
        if self._nested_ended(character):
            self._step = self._after_value

    def _in_nested(self, character: str) -> None:
        if not self._quoted:
            self._check_order(character)
        self._string.append(character)
        if self._nested_ended(character):
            self._value_ended("".join(self._string))

    def _check_order(self, character: str) -> None:
        """Raise if no JSON goes on with this character outside of its strings."""
        continues, self._in_word = self._in_word, character in _NESTED_SCALAR
        if character in ",:":
            possible = not self._value_due
            self._value_due = True
        elif character in '"{[' or (self._in_word and not continues):
            possible = self._value_due
            self._value_due = character in "{["
        else:
            possible = self._in_word or character in "}]" or character in _SPACE
            self._value_due = self._value_due and character in _SPACE
        if not possible:
            raise NotACallError

    def _in_scalar(self, character: str) -> None:
        if character in _SCALAR:
            self._string.append(character)
            return
        self._value_ended("".join(self._string))
        self._step(character)

    def _value_ended(self, text: str) -> None:
        self._step = self._after_value
        if self.is_call:
            return
        if self._key == "name":
            name = _decoded(text)
            if not isinstance(name, str) or name not in self._names:
                raise NotACallError
            self._name = name
            if self._early_arguments is not None:
                self._become_call(self._early_arguments)
        elif self._key in _ARGUMENT_KEYS:
            arguments = _object_text(text)
            if self._name:
                self._become_call(arguments)
            else:
                self._early_arguments = arguments

    def _become_call(self, arguments: str) -> None:
        self.is_call = True
        self._arguments.append(arguments)

    def _after_value(self, character: str) -> None:
        if character == ",":
            self._step = self._before_key
        elif character == "}":
            self._end()
        elif character not in _SPACE:
            raise NotACallError

    def _end(self) -> None:
        if not self.is_call:
            if not self._name or self._needs_arguments:
                raise NotACallError
            self._become_call("{}")
        self.ended = True


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        raise NotACallError from None


def _object_text(text: str) -> str:
    """Return the JSON of an object, which some models write as a string that contains its JSON."""
    value = _decoded(text)
    if isinstance(value, str):
        text, value = value, _decoded(value)
    if not isinstance(value, dict):
        raise NotACallError
    return text
