"""Keys and values of the configuration as people type them on a command line. Pure."""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Sequence
from typing import Any, Final

from msgspec.inspect import DictType, ListType, LiteralType, StrType

from protocol.config.fields import SettingField, setting_fields
from protocol.config.section_checks import ENTRY_CHECKS
from protocol.config.sections import section_fields, suggestion
from protocol.config.settings import SECTIONS
from protocol.config.toml_edit import parse_key, written_value
from protocol.config.toml_lines import KeyPath

_SECTION_SIZE: Final = 2
"""Names in the path of a section: its kind and its own."""


def setting_path(text: str) -> KeyPath:
    """Return the path of a setting or section as it is typed; raises ValueError with the reason in words."""
    try:
        path = parse_key(text)
    except ValueError as problem:
        raise ValueError(f'{text!r} is not a key such as port, or models."Qwen3-0.6B".ttl') from problem
    if path[0] in SECTIONS:
        if len(path) == 1:
            raise ValueError(f"name the section as well: {text}.NAME.KEY")
    elif path[0] not in setting_fields():
        raise ValueError(
            f"unknown setting {path[0]!r}{suggestion(path[0], setting_fields(), '`lemonbus config` lists them')}"
        )
    return path


def setting_value(path: KeyPath, words: Sequence[str]) -> Any:
    """Return the value that the words mean for this setting, as TOML has it; raises ValueError with the reason in words.

    Several words, or one with commas, are a list. Whether the value is allowed is left to who reads the file.
    """
    field = _field(path)
    if field is not None and isinstance(field.type, ListType):
        return _list_of(words)
    if len(words) != 1:
        raise ValueError("expected one value: only lists have several")
    (word,) = words
    if path[0] in SECTIONS and path[_SECTION_SIZE : _SECTION_SIZE + 1] == ("env",) and len(path) > _SECTION_SIZE + 1:
        return word
    if field is None or isinstance(field.type, DictType):
        return _as_toml(word)
    if isinstance(field.type, StrType | LiteralType):
        return word
    if field.is_switch:
        with contextlib.suppress(ValueError):
            return field.parse_text(word)  # also yes, no, on, off
    return _as_toml(word)


def _field(path: KeyPath) -> SettingField | None:
    """Return the declared setting, None for an entry of a table such as ``options``, or for a key that does not exist."""
    if path[0] not in SECTIONS:
        return setting_fields()[path[0]] if len(path) == 1 else None
    if len(path) <= _SECTION_SIZE:
        raise ValueError("a section is not a value: name one of its keys")
    key = path[_SECTION_SIZE]
    return None if key in ENTRY_CHECKS and len(path) > _SECTION_SIZE + 1 else section_fields(path[0]).get(key)


def _list_of(words: Sequence[str]) -> list[Any]:
    if len(words) != 1:
        return list(words)
    found = _as_toml(words[0])
    return found if isinstance(found, list) else [part.strip() for part in words[0].split(",") if part.strip()]


def _as_toml(word: str) -> Any:
    """Return what a word means in TOML: a number, ``true``, a list, a table. Anything else is a text."""
    try:
        found = tomllib.loads(f"value = {word}")
        written_value(found["value"])
    except (ValueError, RecursionError):
        return word
    return found["value"] if len(found) == 1 else word
