"""Finds where each key and table of a TOML text is written, because ``tomllib`` gives the values without their places.

The text must be valid TOML; the scanner does not check it again.
"""

from __future__ import annotations

import re
import tomllib
from typing import Final, NamedTuple

KeyPath = tuple[str, ...]
"""A key with its enclosing tables: ``("models", "Qwen", "ttl")``."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_SPACE: Final = re.compile(r"[ \t]*")
_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
"""Spaces, ends of lines and comments, as between the values of an array."""
_SCALAR: Final = re.compile(r"[^,\]}#\r\n]*")
_BASIC: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_LITERAL: Final = re.compile(r"'[^']*'")
_LONG_BASIC: Final = re.compile(r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}', re.DOTALL)
_LONG_LITERAL: Final = re.compile(r"'''(?:[^']|'{1,2}(?!'))*'{3,5}", re.DOTALL)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1, where each key and each table is first written. ``text``: valid TOML.

    Keys of inline tables are included. Tables in an array are not told apart by their index.
    """
    scanner = _Scanner(text)
    scanner.scan()
    return scanner.lines


class Pair(NamedTuple):
    """Where a key and its value are written: offsets of characters, the last one behind the value."""

    key: int
    value: int
    end: int


class Table(NamedTuple):
    """Where a table with a header is written: offsets of its ``[``, and behind the header or the last of its pairs."""

    header: int
    end: int


class Places(NamedTuple):
    """Where everything is written. The table without a name is the one before all headers."""

    pairs: dict[KeyPath, Pair]
    tables: dict[KeyPath, Table]


def places(text: str) -> Places:
    """Return the places of all pairs, those of inline tables included, and of all tables with headers. ``text``: valid TOML."""
    scanner = _Scanner(text)
    scanner.scan()
    return Places(scanner.pairs, scanner.tables)


class _Scanner:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line, self._counted = 1, 0
        """The line of the character at ``_counted``."""
        self.lines: dict[KeyPath, int] = {}
        self.pairs: dict[KeyPath, Pair] = {}
        self.tables: dict[KeyPath, Table] = {(): Table(0, 0)}

    def scan(self) -> None:
        table: KeyPath = ()
        start = 0
        self._skip(_BLANK)
        while self._position < len(self._text):
            if self._peek() == "[":
                start = self._position
                while self._peek() in ("[", " ", "\t"):
                    self._position += 1
                table = self._key(())
                while self._peek() in ("]", " ", "\t"):
                    self._position += 1
            else:
                self._pair(table)
            self.tables[table] = Table(start, self._position)
            self._skip(_BLANK)

    def _pair(self, table: KeyPath) -> None:
        start = self._position
        path = self._key(table)
        self._position += 1  # the "="
        self._skip(_SPACE)
        value = self._position
        self._value(path)
        self.pairs[path] = Pair(start, value, value + len(self._text[value : self._position].rstrip(" \t")))

    def _key(self, table: KeyPath) -> KeyPath:
        """Read a key with dots, note its line, and return its whole path."""
        line = self._current_line()
        path = table
        while True:
            self._skip(_SPACE)
            path = (*path, self._simple_key())
            self.lines.setdefault(path, line)
            self._skip(_SPACE)
            if self._peek() != ".":
                return path
            self._position += 1

    def _simple_key(self) -> str:
        match self._peek():
            case '"':
                quoted = self._take(_BASIC)
                return str(tomllib.loads(f"key = {quoted}")["key"])
            case "'":
                return self._take(_LITERAL)[1:-1]
            case _:
                return self._take(_BARE_KEY)

    def _value(self, path: KeyPath) -> None:
        ahead = self._text[self._position : self._position + 3]
        if ahead == '"""':
            self._take(_LONG_BASIC)
        elif ahead == "'''":
            self._take(_LONG_LITERAL)
        elif ahead[:1] == '"':
            self._take(_BASIC)
        elif ahead[:1] == "'":
            self._take(_LITERAL)
        elif ahead[:1] == "[":
            self._items("]", path)
        elif ahead[:1] == "{":
            self._items("}", path)
        else:
            self._take(_SCALAR)

    def _items(self, end: str, path: KeyPath) -> None:
        """Read an array or an inline table up to its end."""
        self._position += 1
        self._skip(_BLANK)
        while self._peek() != end:
            if end == "}":
                self._pair(path)
            else:
                self._value(path)
            self._skip(_BLANK)
            if self._peek() == ",":
                self._position += 1
                self._skip(_BLANK)
        self._position += 1

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self._text, self._position)
        self._position = found.end() if found else self._position

    def _take(self, pattern: re.Pattern[str]) -> str:
        """Return what is written here, and move past it."""
        found = pattern.match(self._text, self._position)
        if found is None:
            raise ValueError(f"no TOML at character {self._position}")
        self._position = found.end()
        return found[0]

    def _current_line(self) -> int:
        self._line += self._text.count("\n", self._counted, self._position)
        self._counted = self._position
        return self._line
