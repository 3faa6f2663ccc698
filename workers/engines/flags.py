"""A strict reader of the command lines of our engine servers. Each has its table of flags. It knows no library.

A worker reads a user's arguments with the same table before anything is started, so that an unknown flag evicts no model.
``_`` counts as ``-`` in long names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Value = int | float | str | bool


class FlagError(ValueError):
    """A command line that the engine would refuse; the text says why."""


class Flag(NamedTuple):
    """One flag: where its value goes, how it is read, and what a bare one means."""

    target: str
    """Dotted attribute of llama.cpp's parameters, or a name in angle brackets for anything more complex."""
    read: Callable[[str], Value] | None
    bare: Value = True


Row = tuple[str, str, Callable[[str], Value] | None, Value]
"""Names, and the three parts of a :class:`Flag`."""


def one_of(*names: str) -> Callable[[str], Value]:
    """Return a reader that accepts one of these words."""

    def read(text: str) -> Value:
        if text not in names:
            raise ValueError(f"{text} (one of {', '.join(names)})")
        return text

    return read


def table(rows: Sequence[Row]) -> dict[str, Flag]:
    """Return the flags of a command line by their names."""
    return {name: Flag(target, read, bare) for names, target, read, bare in rows for name in names.split()}


def parse(words: Sequence[str], flags: Mapping[str, Flag]) -> list[tuple[str, Value]]:
    """Return (target, value) in the order given; raises :class:`FlagError`."""
    found: list[tuple[str, Value]] = []
    rest = iter(words)
    for word in rest:
        flag = flags.get(word) or flags.get(word.replace("_", "-") if word.startswith("--") else word)
        if flag is None:
            raise FlagError(f"unknown argument {word}")
        if flag.read is None:
            found.append((flag.target, flag.bare))
            continue
        text = next(rest, None)
        if text is None:
            raise FlagError(f"{word} needs a value")
        try:
            found.append((flag.target, flag.read(text)))
        except ValueError as problem:
            what = problem.args[0] if flag.read not in (int, float) else text
            raise FlagError(f"{word} cannot be {what}") from None
    return found
