"""The configuration file: where it is looked for, and its text, whose size is bounded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from protocol.failures import invalid

MAX_FILE_BYTES: Final = 1024 * 1024
"""Size limit of a configuration file: a thousand models with a long system prompt each."""


class ConfigFile(NamedTuple):
    """A configuration file as read."""

    path: str
    text: str


def config_paths(environment: Mapping[str, str], given: str = "") -> list[Path]:
    """Return the files to look for, in order. If one was asked for, it is the only one."""
    asked = given or environment.get("LEMONBUS_CONFIG", "")
    if asked:
        return [Path(absolute_path(asked, "", environment))]
    home = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or "/") / ".config")
    return [Path(folder) / "lemonbus" / "lemonbus.toml" for folder in (home, "/etc")]


def read_config_file(environment: Mapping[str, str], given: str = "") -> ConfigFile | None:
    """Return the configuration file, if there is one. Raises if one was asked for and does not exist."""
    asked = bool(given or environment.get("LEMONBUS_CONFIG"))
    for path in config_paths(environment, given):
        try:
            return ConfigFile(str(path), _read_bounded(path).decode())
        except UnicodeDecodeError as problem:
            raise invalid(f"{path}: expected UTF-8 text, byte {problem.start + 1} is not") from problem
        except (FileNotFoundError, NotADirectoryError) as problem:
            if asked:
                raise invalid(f"{path}: no such configuration file") from problem
        except OSError as problem:
            raise invalid(f"{path}: cannot be read: {problem.strerror}") from problem
    return None


def _read_bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        found = file.read(MAX_FILE_BYTES + 1)
    if len(found) > MAX_FILE_BYTES:
        raise invalid(f"{path}: expected at most {MAX_FILE_BYTES >> 10} KiB, and it has more")
    return found


def absolute_path(path: str, folder: str, environment: Mapping[str, str]) -> str:
    """Return a path of the configuration, relative to ``folder`` or to the home directory (``~``), as an absolute one."""
    home = environment.get("HOME")
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    return os.path.normpath(Path(folder) / path)
