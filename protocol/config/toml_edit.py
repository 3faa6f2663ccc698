"""Changes one value of a TOML text, or adds a section, and leaves everything else as it is written: comments, order, spaces. Pure.

Every change is one of a few places where the text can be changed. The first one counts that makes the text mean what it should,
which ``tomllib`` decides, so that no form of TOML is changed into something else.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from protocol.config.toml_lines import KeyPath, Places, places

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_HEAD: Final = re.compile(r"(?:#[^\n]*\n)+[ \t\r]*\n|")
"""The comment at the beginning of a file that an empty line ends."""
_NESTED: Final = 2
"""Names of a section: ``models`` and the name of the model."""


class UnchangeableError(ValueError):
    """The text has a form in which this change cannot be made."""


def parse_key(text: str) -> KeyPath:
    """Return the path of a key as TOML writes it, such as ``models."Qwen3-0.6B".ttl``; raises ValueError."""
    try:
        found: Any = tomllib.loads(f'{text}."\\u0000" = 0')  # the mark tells whether the text is more than a key
    except RecursionError as problem:
        raise ValueError("too many dots") from problem
    path: list[str] = []
    while isinstance(found, dict) and len(found) == 1:
        ((name, found),) = found.items()
        path.append(name)
    if found != 0 or path[-1] != "\0" or "\n" in text:
        raise ValueError("not one key")
    return tuple(path[:-1])


def written_key(path: KeyPath) -> str:
    """Return a path as TOML writes it."""
    return ".".join(name if _BARE.match(name) else written_value(name) for name in path)


def written_value(value: Any) -> str:
    """Return a text, number, boolean, list or table as TOML writes it, on one line; raises ValueError for anything else."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            value.encode()  # half of a surrogate pair is not TOML
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case list():
            return f"[{', '.join(map(written_value, value))}]"
        case dict():
            pairs = ", ".join(f"{written_key((name,))} = {written_value(each)}" for name, each in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case _:
            raise ValueError(f"no value of a configuration: {value!r}")


def with_value(text: str, path: KeyPath, value: Any) -> str:
    """Return a valid TOML text with another value at ``path``; raises :class:`UnchangeableError`."""
    expected = tomllib.loads(text)
    try:
        inner = expected
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    except (AttributeError, TypeError):
        raise UnchangeableError("a part of the key has a value that is not a table") from None
    return _first(itertools.chain(_changes(text, path, value), _replacements(text, path, value)), expected)


def section_text(path: KeyPath, values: Mapping[str, Any], comment: str = "") -> str:
    """Return a section with one line a value. ``comment``: a line above it, on which control characters are left out."""
    shown = "".join(character for character in comment if character.isprintable())
    lines = [f"# {shown}"] if shown else []
    lines += [
        f"[{written_key(path)}]",
        *(f"{written_key((name,))} = {written_value(each)}" for name, each in values.items()),
    ]
    return "".join(f"{line}\n" for line in lines)


def with_section(text: str, path: KeyPath, values: Mapping[str, Any], comment: str = "") -> str:
    """Return a valid TOML text with another section at its end; raises :class:`UnchangeableError`."""
    expected = tomllib.loads(text)
    inner = expected.setdefault(path[0], {})
    if not isinstance(inner, dict) or path[1] in inner:
        raise UnchangeableError(f"{written_key(path)} is in the file already")
    inner[path[1]] = dict(values)
    line = _newline(text)
    before = text if not text or text.endswith("\n") else text + line
    added = section_text(path, values, comment).replace("\n", line)
    return _first(iter([before + (line if before.strip() else "") + added]), expected)


def without_value(text: str, path: KeyPath) -> str:
    """Return a valid TOML text without the value or table at ``path``; raises KeyError if it has none, :class:`UnchangeableError`."""
    expected = tomllib.loads(text)
    inner = expected
    for name in path[:-1]:
        inner = inner[name] if isinstance(inner, dict) else {}
    if not isinstance(inner, dict):
        raise KeyError(path[-1])
    del inner[path[-1]]
    found = places(text)
    return _first(_removals(text, path, found), expected)


def _first(texts: Iterator[str], expected: dict[str, Any]) -> str:
    """Return the first of the texts that means what is expected. An empty table is as good as none."""
    wanted = _without_empty(expected)
    for text in texts:
        try:
            if _without_empty(tomllib.loads(text)) == wanted:
                return text
        except (ValueError, RecursionError):
            continue
    raise UnchangeableError("it is written in a form that only a person can change")


def _without_empty(table: dict[str, Any]) -> dict[str, Any]:
    inner = {name: _without_empty(each) if isinstance(each, dict) else each for name, each in table.items()}
    return {name: each for name, each in inner.items() if each != {}}


def _changes(text: str, path: KeyPath, value: Any) -> Iterator[str]:
    found = places(text)
    new = written_value(value)
    if path in found.pairs:
        pair = found.pairs[path]
        yield text[: pair.value] + new + text[pair.end :]
    for size in range(len(path) - 1, 0, -1):
        pair_of_table = found.pairs.get(path[:size])
        if pair_of_table is not None and text[pair_of_table.value] == "{":
            inside = text[pair_of_table.value + 1 : pair_of_table.end - 1].rstrip()
            entries = f"{inside}, " if inside else " "
            entry = f"{entries}{written_key(path[size:])} = {new} "
            yield text[: pair_of_table.value + 1] + entry + text[pair_of_table.end - 1 :]
    for size in range(len(path) - 1, 0, -1):
        if path[:size] in found.tables:
            yield _inserted(text, found.tables[path[:size]].end, f"{written_key(path[size:])} = {new}")
    at_top = _inserted(text, found.tables[()].end, f"{written_key(path)} = {new}")
    if len(path) > _NESTED:
        header = f"[{written_key(path[:_NESTED])}]"
        space = _newline(text) if text.strip() else ""
        yield _inserted(text, len(text), f"{space}{header}{_newline(text)}{written_key(path[_NESTED:])} = {new}")
    yield at_top


def _replacements(text: str, path: KeyPath, value: Any) -> Iterator[str]:
    """Yield changes of a text without the old value: a table that is written in several places becomes one value."""
    with contextlib.suppress(KeyError, UnchangeableError):
        yield from _changes(without_value(text, path), path, value)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _inserted(text: str, after: int, line: str) -> str:
    """Return the text with another line, behind the line that contains the offset ``after``; 0: at the beginning."""
    if not after:
        head = _HEAD.match(text)
        at = head.end() if head else 0
    else:
        end = text.find("\n", after)
        at = len(text) if end < 0 else end + 1
    before = text[:at]
    if before and not before.endswith("\n"):
        before += _newline(text)
    space = _newline(text) if not after and text.startswith("[", at) else ""
    return before + line + _newline(text) + space + text[at:]


def _removals(text: str, path: KeyPath, found: Places) -> Iterator[str]:
    if path in found.pairs:
        pair = found.pairs[path]
        yield _cut(text, [(pair.key, pair.end)])
    for size in range(len(path) - 1, 0, -1):
        pair_of_table = found.pairs.get(path[:size])
        if pair_of_table is not None and text[pair_of_table.value] == "{":
            table = tomllib.loads(f"table = {text[pair_of_table.value : pair_of_table.end]}")["table"]
            inner = table
            for name in path[size:-1]:
                inner = inner[name]
            del inner[path[-1]]
            yield text[: pair_of_table.value] + written_value(table) + text[pair_of_table.end :]
    yield _cut(
        text,
        [
            *((table.header, table.end) for at, table in found.tables.items() if at and at[: len(path)] == path),
            *((pair.key, pair.end) for at, pair in found.pairs.items() if at[: len(path)] == path),
        ],
    )


def _cut(text: str, ranges: list[tuple[int, int]]) -> str:
    """Return the text without the lines of these ranges. Of two empty lines that would meet, one goes as well."""
    kept, position = "", 0
    for start, end in sorted(ranges):
        line, behind = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        if line >= position:
            kept += text[position:line]
        position = max(position, len(text) if behind < 0 else behind + 1)
        rest = text[position:].lstrip("\r")
        if (not rest or rest.startswith("\n")) and kept.endswith(("\n\n", "\n\r\n")):
            kept = kept[:-2] if kept.endswith("\r\n") else kept[:-1]
    return kept + text[position:]
