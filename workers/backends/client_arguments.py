"""Which engine arguments a client may send with a load: an allow-list for each engine. Pure.

An engine's command line can read any file, write files, open ports and run programs. The administrator's own arguments
(the configuration file, flags and environment of ``lemonbus serve``) may do all this. A client's may not: each flag
must be in the recipe's ``client_flags``, its value must have the form given there, and a file must be below a directory
that the administrator has allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from protocol.failures import invalid
from protocol.models import checkpoints
from protocol.models.recipes import ClientFlag, FlagFiles
from workers.backends import arguments

INTEGER: Final = r"-?\d{1,9}"
COUNT: Final = r"\d{1,9}"
NUMBER: Final = r"-?(\d{1,12}(\.\d{0,12})?|\.\d{1,12})([eE][-+]?\d{1,2})?"
WORD: Final = r"[\w.:+-]{1,64}"
_NUMBER_CHARACTERS: Final = 20
"""More than any limit."""
SWITCH: Final = "on|off|auto|enabled|disabled|true|false|yes|no|1|0"


def switches(names: str) -> list[ClientFlag]:
    """Return flags without a value. ``names``: separated by spaces."""
    return [ClientFlag(names.split())]


def valued(names: str, pattern: str, files: FlagFiles = FlagFiles.NONE, most: int = 0) -> list[ClientFlag]:
    """Return flags whose whole value matches the regular expression and is at most ``most``; 0: no limit."""
    return [ClientFlag(names.split(), pattern, files, most)]


def file_flags(names: str, files: FlagFiles = FlagFiles.ONE) -> list[ClientFlag]:
    """Return flags whose value names files."""
    return valued(names, r"[^\0]{1,4096}", files)


def check_argument_numbers(option: str, flags: Sequence[ClientFlag], words: Sequence[str]) -> None:
    """Raise ``invalid_request`` naming the first number that is larger than its flag allows.

    This applies to clients and to the administrator. A value that is not a number is left to the engine.
    """
    limits = {name: flag.most for flag in flags if flag.most for name in flag.names}
    for word, value in pairwise(words):
        most = limits.get(arguments.flag_of(word))
        if most and re.fullmatch(r"[+-]?\d+", value, re.ASCII) and not -most <= int(value[:_NUMBER_CHARACTERS]) <= most:
            shown = checkpoints.printable(value)
            raise invalid(f"{option}: {word} cannot be {shown}; the largest number is {most}", option)


def check_client_arguments(
    option: str, allowed: Sequence[ClientFlag], words: Sequence[str], directories: Sequence[str]
) -> None:
    """Raise ``invalid_request`` naming the first word that a client may not send.

    ``directories``: absolute paths; a client may name files below them.
    """
    flags = {name: flag for flag in allowed for name in flag.names}
    rest = iter(words)
    for word in rest:
        name = word.replace("_", "-") if word.startswith("--") else word
        flag = flags.get(word) or flags.get(name)
        if flag is None:
            shown = checkpoints.printable(arguments.flag_of(word))
            raise invalid(
                f"{option}: {shown} cannot be sent with a load; if the engine has it, the administrator can set it in the configuration",
                option,
            )
        if not flag.pattern:
            continue
        value = next(rest, None)
        if value is None:
            raise invalid(f"{option}: {word} needs a value", option)
        if not re.fullmatch(flag.pattern, value, re.ASCII | re.DOTALL):
            raise invalid(f"{option}: {word} cannot be {checkpoints.printable(value)!r}", option)
        for path in _paths(flag.files, value):
            if not is_below(path, directories):
                raise invalid(
                    f"{option}: {word} must name a file below the extra models directory, the hub's cache or a directory"
                    " of the setting engine_file_dirs",
                    option,
                )


def _paths(files: FlagFiles, value: str) -> Iterable[str]:
    match files:
        case FlagFiles.NONE:
            return []
        case FlagFiles.ONE:
            return [value]
        case FlagFiles.SEVERAL:
            return value.split(",")
        case FlagFiles.SCALED:
            return [item.rpartition(":")[0] or item for item in value.split(",")]


def is_below(path: str, directories: Sequence[str]) -> bool:
    """Return whether an absolute path is below one of the directories, judging by its text alone.

    Links are not followed: only the administrator makes them in these directories.
    """
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or ".." in parts:
        return False
    roots = [PurePosixPath(directory).parts for directory in directories if directory.startswith("/")]
    return any(len(parts) > len(root) and parts[: len(root)] == root for root in roots)
