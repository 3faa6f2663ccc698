"""Resolves the settings of a server: flags > environment > the TOML file > defaults, each with its origin.

:func:`resolve` is pure: text in, settings or a failure out. A failure is for the operator at the terminal: it
names the file and line, the variable or the flag, and what was expected there.
"""

from __future__ import annotations

import contextlib
import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from protocol.config.api_keys import KEY_VARIABLES, keys_required
from protocol.config.config_file import ConfigFile, absolute_path, read_config_file
from protocol.config.fields import SECRET_SETTINGS, SettingField, setting_fields, shown_value
from protocol.config.sections import MASK, read_sections, suggestion
from protocol.config.settings import SECTIONS, Settings
from protocol.config.toml_lines import KeyPath, key_lines
from protocol.failures import Code, Failure, LemonbusError, invalid

Flags = Mapping[str, str | list[str]]
"""Name of the setting → the text of its flag, or of all of them if it is repeatable."""

_PREFIX: Final = "LEMONBUS_"
_PLACE: Final = re.compile(r"at line (\d+)")
"""In the messages of ``tomllib``."""
OTHER_ENVIRONMENT_VARIABLES: Final = frozenset(
    {
        "CONFIG",
        "URL",
        "SETTINGS",
        "SETTINGS_FD",
        "ORIGINS",
        "WARNINGS",
        "COMMAND_LINE",
        "RESULT_FD",
        "KEEPER",
        "KEEPER_FD",
        "CONTEXT_DIR",
        "BOOT",
        "SUPERVISOR",
        "PEER",
        "ROLE",
        "FINGERPRINT",
        "LISTEN_FD",
        "HEARTBEAT_FD",
    },
)
"""``LEMONBUS_…`` variables that are not settings: the command line's, and those between the server's processes."""


class Origin(NamedTuple):
    """Where a value comes from: ``flag``, ``environment``, ``file`` or ``default``, and its name there."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.kind


class ResolvedSettings(NamedTuple):
    """The settings of a server and where each value comes from."""

    settings: Settings
    origins: dict[str, Origin]
    """By the name of the setting; those of sections by their dotted name, as ``models.NAME.ttl``."""
    warnings: list[str]
    """Warnings about variables that look like settings but are not."""


def resolve(flags: Flags, environment: Mapping[str, str], file: ConfigFile | None, folder: str) -> ResolvedSettings:
    """Return the settings; raises an ``invalid_request`` failure with the setting as ``param``.

    ``folder`` is the working directory: relative directories in flags and variables start there. In the file, they
    start at the file's own folder.
    """
    parsed = _parsed(file)
    origins = {name: Origin("default") for name in setting_fields()}
    values: dict[str, Any] = {}
    for name, (value, origin) in {
        **_from_file(parsed, environment),
        **_from_environment(environment, folder),
        **_from_flags(flags, environment, folder),
    }.items():
        values[name], origins[name] = value, origin
    sections = read_sections(parsed.path, parsed.table, parsed.lines)
    origins |= {name: Origin("file", f"{parsed.path}:{line}") for name, line in sections.lines.items()}
    settings = Settings(**(values | sections.values))
    if settings.backoff_first > settings.backoff_most:
        where = origins["backoff_first"] if origins["backoff_first"].kind != "default" else origins["backoff_most"]
        raise invalid(
            f"{where}: backoff_first ({settings.backoff_first:g}) must not be above"
            f" backoff_most ({settings.backoff_most:g})",
            "backoff_first",
        )
    return ResolvedSettings(settings, origins, _unknown_variables(environment))


def load_settings(flags: Flags | None = None, given: str = "") -> ResolvedSettings:
    """Resolve the settings from this process's environment and files. ``given``: the value of ``--config``."""
    return resolve(flags or {}, os.environ, read_config_file(os.environ, given), str(Path.cwd()))


def readable_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings without the wrong part of the file: the server may still run with an earlier file.

    Raises as :func:`resolve` for variables, because they are the client's own.
    """
    try:
        file = read_config_file(environment)
    except LemonbusError:
        file = None
    values: ValuesWithOrigin = {}
    if file is not None:
        table = _readable_table(file.text)
        for name in table.keys() & setting_fields().keys():
            with contextlib.suppress(LemonbusError):
                values |= _from_file(_ParsedFile(file.path, {name: table[name]}, {}), environment)
    values |= _from_environment(environment, str(Path.cwd()))
    return Settings(**{name: value for name, (value, _) in values.items()})


def _readable_table(text: str) -> dict[str, Any]:
    """Return the values of a TOML text up to its first wrong line."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        place = _PLACE.search(str(problem))
        before = "".join(text.splitlines(keepends=True)[: int(place[1]) - 1]) if place else ""
    with contextlib.suppress(ValueError, RecursionError):
        return tomllib.loads(before)
    return {}


def require_key_beyond_loopback(settings: Settings) -> None:
    """Refuse to serve beyond this machine without a key, unless the operator allowed it explicitly."""
    if settings.allow_remote or is_loopback(settings.host) or keys_required(settings):
        return
    raise Failure(
        Code.INVALID_REQUEST,
        f"refusing to bind {settings.host} without an API key: every client that reaches this address could use and"
        " change the server. Make a key with `lemonbus keys add NAME --scope admin --state-dir"
        f" {settings.state_dir}`, set LEMONBUS_API_KEY, or allow it with --allow-remote",
        param="host",
    ).raised()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``. Any name but localhost may be reachable from elsewhere."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def masked(name: str, value: object) -> object:
    """Return the value as people may see it: secrets are masked."""
    return MASK if name in SECRET_SETTINGS and value else value


ValuesWithOrigin = dict[str, tuple[Any, Origin]]


def _from_flags(flags: Flags, environment: Mapping[str, str], folder: str) -> ValuesWithOrigin:
    found: ValuesWithOrigin = {}
    for name, given in flags.items():
        field = setting_fields()[name]
        try:
            value = field.parse_text(given) if isinstance(given, str) else field.checked(given)
        except ValueError as problem:
            raise _invalid_value(field.flag, field, given) from problem
        found[name] = _resolved_path(field, value, folder, environment), Origin("flag", field.flag)
    return found


def _from_environment(environment: Mapping[str, str], folder: str) -> ValuesWithOrigin:
    """An empty variable counts as unset, because compose files and units leave one out that way."""
    found: ValuesWithOrigin = {}
    for field in setting_fields().values():
        variables = KEY_VARIABLES.get(field.name, (field.variable,))
        variable = next((each for each in variables if environment.get(each)), None)
        if variable is None:
            continue
        try:
            value = field.parse_text(environment[variable])
        except ValueError as problem:
            raise _invalid_value(variable, field, environment[variable]) from problem
        found[field.name] = _resolved_path(field, value, folder, environment), Origin("environment", variable)
    return found


class _ParsedFile(NamedTuple):
    """A configuration file as TOML."""

    path: str
    table: dict[str, Any]
    lines: dict[KeyPath, int]


def _parsed(file: ConfigFile | None) -> _ParsedFile:
    if file is None:
        return _ParsedFile("", {}, {})
    try:
        return _ParsedFile(file.path, tomllib.loads(file.text), key_lines(file.text))
    except (ValueError, RecursionError) as problem:
        reason = str(problem) if isinstance(problem, tomllib.TOMLDecodeError) else "a value beyond any bounds"
        reason = reason.replace("end of document", f"the end, line {file.text.count(chr(10)) + 1}")
        raise invalid(f"{file.path}: expected TOML: {reason[:1].lower()}{reason[1:]}") from problem


def _from_file(file: _ParsedFile, environment: Mapping[str, str]) -> ValuesWithOrigin:
    found: ValuesWithOrigin = {}
    for name, given in file.table.items():
        if name in SECTIONS:
            continue
        where = f"{file.path}:{file.lines.get((name,), 1)}"
        field = setting_fields().get(name)
        if field is None:
            similar = suggestion(
                name, SECTIONS if isinstance(given, dict) else setting_fields(), "`lemonbus config` lists all settings"
            )
            raise invalid(f"{where}: unknown setting {name!r}{similar}", name)
        try:
            value = field.checked(given)
        except ValueError as problem:
            raise _invalid_value(f"{where}: {name}", field, given) from problem
        found[name] = _resolved_path(field, value, str(Path(file.path).parent), environment), Origin("file", where)
    return found


def _invalid_value(where: str, field: SettingField, given: object) -> LemonbusError:
    got = "something else" if field.name in SECRET_SETTINGS else shown_value(given)
    return invalid(f"{where}: expected {field.expected}, got {got}", field.name)


def _resolved_path(field: SettingField, value: Any, folder: str, environment: Mapping[str, str]) -> Any:
    return absolute_path(value, folder, environment) if field.is_directory and value else value


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    settings = {field.variable.removeprefix(_PREFIX) for field in setting_fields().values()}
    known = settings | OTHER_ENVIRONMENT_VARIABLES
    given = sorted(name.removeprefix(_PREFIX) for name in environment if name.startswith(_PREFIX))
    return [
        f"{_PREFIX}{name} is not a setting and is ignored{_nearest(name, settings)}"
        for name in given
        if name not in known
    ]


def _nearest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, 1, 0.5)
    return f"; did you mean {_PREFIX}{close[0]}?" if close else "; `lemonbus config` lists all settings"
