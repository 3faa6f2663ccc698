"""Reads the sections of the configuration file: checks every key and value, and names a wrong one with its line. Pure.

What only the recipes know (names and bounds of options, flags of engines) is checked by the supervisor, which gets the
lines of all keys by their dotted names: ``models."Qwen3-0.6B".options.ctx_size``.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from protocol.config import section_checks
from protocol.config.fields import SettingField, declared_fields, shown_value
from protocol.config.model_settings import PROGRAM_KEYS, GroupSettings, ModelSettings, RecipeDefaults, RemoteSettings
from protocol.config.settings import SECTIONS, Settings
from protocol.config.toml_lines import KeyPath
from protocol.failures import invalid

MAX_SECTIONS: Final = 1000
"""Sections of one kind."""
_TYPES: Final[dict[str, type[msgspec.Struct]]] = {
    "models": ModelSettings,
    "defaults": RecipeDefaults,
    "groups": GroupSettings,
    "remotes": RemoteSettings,
}
_HEADERS: Final = {
    "models": '[models."NAME"]',
    "defaults": "[defaults.RECIPE]",
    "groups": "[groups.NAME]",
    "remotes": "[remotes.NAME]",
}
_EXPECTED: Final = {
    "aliases": "a list of names of at most 256 characters",
    "api_key_env": "the name of a variable: letters, digits and _",
    "api_key_file": "an absolute path",
    "args": "a command line, as one text",
    "capabilities": 'a list of labels such as ["vision", "tools"]',
    "command": 'a list such as ["vllm", "serve", "Qwen/Qwen3-8B", "--port", "{port}"]',
    "devices": 'a list such as ["0", "1"] or ["CUDA0"]',
    "mmproj": "the absolute path of a file",
    "nodes": 'a list of patterns of names of nodes, such as ["gpu-*"]',
    "node_labels": 'a table of labels, such as { zone = "west" }',
    "node_resources": "a table of amounts above 0, such as { a100 = 1 }",
    "drop": "a list of names of request fields",
    "env": 'a table of variables: NAME = "text"',
    "health": "a path such as /health",
    "models": "a non-empty list of names of models",
    "options": "a table of load options: NAME = a value",
    "parts": 'a table of absolute paths, such as { vae = "/models/ae.safetensors" }',
    "path": "the absolute path of a model file",
    "request_defaults": "a table of request fields: NAME = a value",
    "set": "a table of request fields: NAME = a value",
    "slots": "a whole number from 1 up to 4096",
    "start_timeout": "a number above 0 up to 86400",
    "system_prompt": "a text of at most 65536 characters",
    "timeout": "a number above 0 up to 86400",
    "url": "an http or https address, up to its /v1, without a user and a query",
    "urls": "a non-empty list of http or https addresses, up to their /v1, without a user and a query",
    "user": "the name of a user, or its number as a text",
    "working_directory": "an absolute path",
}
"""Setting → its allowed values in words, where its type does not say it."""
MASK: Final = "********"
"""Stands for a value that is not shown."""
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")


class Sections(NamedTuple):
    """The sections of a file, and where each of their settings is written."""

    values: dict[str, dict[str, Any]]
    """The sections that the file has, by kind."""
    lines: dict[str, int]
    """Dotted name of a section or of a setting → its line."""


def dotted_name(path: KeyPath) -> str:
    """Return a path as TOML writes it."""
    return ".".join(part if _BARE.match(part) else _quoted(part) for part in path)


def _quoted(part: str) -> str:
    text = msgspec.json.encode(part.encode("utf-8", "backslashreplace").decode()).decode()
    return text if len(text) <= 300 else text[:296] + '..."'


def read_sections(file: str, table: Mapping[str, Any], lines: Mapping[KeyPath, int]) -> Sections:
    """Return the sections of a file; raises ``invalid_request`` for the first wrong one.

    ``file``: its name in messages; ``table``: its values; ``lines``: see :func:`protocol.config.toml_lines.key_lines`.
    """
    remotes = table.get("remotes")
    reader = _Reader(file, lines, frozenset(remotes) if isinstance(remotes, dict) else frozenset())
    values = {kind: reader.read(kind, table[kind]) for kind in SECTIONS if kind in table}
    models, groups = values.get("models", {}), values.get("groups", {})
    wrong = itertools.chain(section_checks.claimed_twice(models, groups), section_checks.beyond_groups(models, groups))
    for path, problem in itertools.islice(wrong, 1):
        reader.fail(path, problem)
    return Sections(values, reader.lines)


def section_values(settings: Settings) -> dict[str, Any]:
    """Return the settings of the sections by dotted names.

    Environment variables are masked, because they often hold secrets.
    """
    found: dict[str, Any] = {}
    for kind in SECTIONS:
        for name, section in getattr(settings, kind).items():
            # Only what was given: the default of a field says nothing.
            for key, value in msgspec.to_builtins(section).items():
                if key in section_checks.ENTRY_CHECKS:
                    entries = dict.fromkeys(value, MASK) if key == "env" else value
                    found |= {dotted_name((kind, name, key, entry)): each for entry, each in entries.items()}
                else:
                    found[dotted_name((kind, name, key))] = value
    return found


class _Reader:
    """Reads the sections of one file."""

    def __init__(self, file: str, lines: Mapping[KeyPath, int], remotes: frozenset[str]) -> None:
        self._file, self._lines_of_keys, self._remotes = file, lines, remotes
        self.lines: dict[str, int] = {}
        """See :attr:`Sections.lines`."""

    def fail(self, path: KeyPath, problem: str) -> NoReturn:
        """Raise the error for what is written at a path."""
        raise invalid(f"{self._file}:{self._line(path)}: {dotted_name(path)}: {problem}", dotted_name(path))

    def _line(self, path: KeyPath) -> int:
        written = (path[:end] for end in range(len(path), 0, -1))
        return next((self._lines_of_keys[each] for each in written if each in self._lines_of_keys), 1)

    def read(self, kind: str, given: object) -> dict[str, Any]:
        """Return all sections of a kind."""
        if not isinstance(given, dict):
            self.fail((kind,), f"expected sections {_HEADERS[kind]}, got {shown_value(given)}")
        if len(given) > MAX_SECTIONS:
            self.fail((kind,), f"expected at most {MAX_SECTIONS} sections, got {len(given)}")
        return {name: self._section(kind, name, section) for name, section in given.items()}

    def _section(self, kind: str, name: str, given: object) -> msgspec.Struct:
        path = (kind, name)
        self._refuse(path, section_checks.name_problem(name))
        if not isinstance(given, dict):
            self.fail(path, f"expected a section {_HEADERS[kind]}, got {shown_value(given)}")
        self._note(path)
        fields = section_fields(kind)
        for key, value in given.items():
            field = fields.get(key)
            if field is None:
                if isinstance(value, dict):
                    header = f'[{kind}."{_name_with_dots(name, key, value, fields)}"]'
                    self.fail((*path, key), f"unknown section; a name with dots needs quotes: {header}")
                known = suggestion(key, fields, f"there are: {', '.join(fields)}")
                self.fail((*path, key), f"unknown setting{known}")
            self._setting(field, (*path, key), value, own_program=not given.keys().isdisjoint(PROGRAM_KEYS))
        if kind == "groups" and "models" not in given:
            self.fail(path, f"expected models, {_EXPECTED['models']}")
        if kind == "remotes" and "url" not in given:
            self.fail(path, f"expected url, {_EXPECTED['url']}")
        if kind == "remotes" and not _BARE.match(name):
            self.fail(path, "expected a name of letters, digits, - and _: it stands before the names of the models")
        section = msgspec.convert(given, _TYPES[kind])
        wrong = section_checks.contradictions(path, section, given, self._remotes)
        for where, problem in itertools.islice(wrong, 1):
            self.fail(where, problem)
        return section

    def _setting(self, field: SettingField, path: KeyPath, value: object, *, own_program: bool) -> None:
        """Check one setting, and note its line. ``own_program``: the section names a program of the operator's own."""
        entry_problem = section_checks.ENTRY_CHECKS.get(field.name)
        if own_program and field.name == "env":
            entry_problem = section_checks.own_variable_problem
        if entry_problem is not None and isinstance(value, dict):
            for name, entry in value.items():
                self._refuse((*path, name), entry_problem(name, entry))
                self._note((*path, name))
            return
        self._note(path)
        try:
            msgspec.convert(value, field.annotation)
        except ValueError:
            self.fail(path, f"expected {_EXPECTED.get(field.name, field.expected)}, got {shown_value(value)}")
        self._refuse(path, section_checks.text_problem(field.name, value))

    def _refuse(self, path: KeyPath, problem: str) -> None:
        if problem:
            self.fail(path, problem)

    def _note(self, path: KeyPath) -> None:
        self.lines[dotted_name(path)] = self._line(path)


def _name_with_dots(name: str, key: str, value: dict[str, Any], fields: Iterable[str]) -> str:
    """Return the name that was probably meant: TOML reads a name with dots as nested tables."""
    names = [name, key]
    while len(value) == 1:
        (inner, below), *_ = value.items()
        if inner in fields or not isinstance(below, dict):
            break
        names.append(inner)
        value = below
    return ".".join(names)


@cache
def section_fields(kind: str) -> dict[str, SettingField]:
    """Return what a section of this kind may have, by name."""
    return declared_fields(_TYPES[kind])


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the end of a message about an unknown name: the known one that was probably meant, or what else to do."""
    close = difflib.get_close_matches(name.lower().replace("-", "_"), list(known), 1, 0.7)
    return f"; did you mean {close[0]}?" if close else f"; {otherwise}"
