"""A user's arguments for an engine: split into words, and checked against the engine's table of flags, ``flags`` of its recipe. Pure.

An engine's command line can read any file, write files, open ports and run programs. The administrator's own arguments
(the configuration file, flags and environment of ``lemonbus serve``) may do all this, except what lemonbus sets itself.
A client's may not: each flag must be one that the table gives to clients, its value must have the form given there, and
a file must be below a directory that the administrator has allowed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from protocol.failures import invalid, printable
from workers.backends.flag_table import FileNames, FlagTable, Setter, name_of

_NUMBER_CHARACTERS: Final = 20
"""More than any limit."""


def split_args(option: str, args: str) -> list[str]:
    """Split a command line as a shell does; raises ``invalid_request`` for an open quote or a NUL."""
    if "\0" in args:
        raise invalid(f"{option} must not contain NUL", option)
    try:
        return shlex.split(args)
    except ValueError as problem:
        raise invalid(f"{option} cannot be split into words: {problem}", option) from None


def check_arguments(option: str, flags: FlagTable, args: str) -> list[str]:
    """Return the words of an option; raises ``invalid_request`` naming a flag that lemonbus sets."""
    words = split_args(option, args)
    for word in words:
        name = name_of(word)
        flag = flags.find(name)
        if flag is not None and flag.setter is Setter.LEMONBUS:
            alias = f" (the same as {flag.same_as})" if flag.same_as not in ("", name) else ""
            source = f" from the option {flag.option}" if flag.option else ""
            raise invalid(f"{option} must not contain {name}{alias}: lemonbus sets it{source}", option)
    return words


def check_argument_numbers(option: str, flags: FlagTable, words: Sequence[str]) -> None:
    """Raise ``invalid_request`` naming the first number that is larger than its flag allows.

    This applies to clients and to the administrator. A value that is not a number is left to the engine.
    """
    for word, value in pairwise(words):
        flag = flags.find(name_of(word))
        most = flag.kind.most if flag and flag.kind else 0
        if most and re.fullmatch(r"[+-]?\d+", value, re.ASCII) and not -most <= int(value[:_NUMBER_CHARACTERS]) <= most:
            shown = printable(value)
            raise invalid(f"{option}: {word} cannot be {shown}; the largest number is {most}", option)


def check_client_arguments(option: str, flags: FlagTable, words: Sequence[str], directories: Sequence[str]) -> None:
    """Raise ``invalid_request`` naming the first word that a client may not send.

    ``directories``: absolute paths; a client may name files below them.
    """
    rest = iter(words)
    for word in rest:
        flag = flags.find(word)
        if flag is None or flag.setter is not Setter.CLIENT:
            shown = printable(name_of(word))
            raise invalid(
                f"{option}: {shown} cannot be sent with a load; if the engine has it, the administrator can set it in the configuration",
                option,
            )
        if flag.kind is None:
            continue
        value = next(rest, None)
        if value is None:
            raise invalid(f"{option}: {word} needs a value", option)
        if not re.fullmatch(flag.kind.pattern, value, re.ASCII | re.DOTALL):
            raise invalid(f"{option}: {word} cannot be {printable(value)!r}", option)
        for path in _paths(flag.kind.files, value):
            if not is_below(path, directories):
                raise invalid(
                    f"{option}: {word} must name a file below the extra models directory, the hub's cache or a directory"
                    " of the setting engine_file_dirs",
                    option,
                )


def _paths(files: FileNames, value: str) -> Iterable[str]:
    match files:
        case FileNames.NONE:
            return []
        case FileNames.ONE:
            return [value]
        case FileNames.SEVERAL:
            return value.split(",")
        case FileNames.SCALED:
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
