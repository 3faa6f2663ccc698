"""How the flags of an engine are declared: each recipe has one table, its module ``flags``, and all else follows from it. Pure; it knows no library.

From the table follow which flags lemonbus sets itself and which a client may send (``user_arguments.py``), how our own server
reads its command line, and which flags a kept prompt cache depends on. A worker reads a user's arguments with the same
table before anything is started, so that an unknown flag evicts no model.

``_`` counts as ``-`` in long names.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

Value = int | float | str | bool
MAX_THREADS: Final = 1_024


class FlagError(ValueError):
    """A command line that the engine would refuse; the text says why."""


class FileNames(enum.Enum):
    """How the value of a flag names files."""

    NONE = enum.auto()
    ONE = enum.auto()
    SEVERAL = enum.auto()
    """Separated by commas."""
    SCALED = enum.auto()
    """Separated by commas, each followed by a colon and a number."""


class Setter(enum.Enum):
    """Who may set a flag."""

    CLIENT = enum.auto()
    """Clients, with a load, and the operator."""
    OPERATOR = enum.auto()
    """The configuration, the flags and the environment of ``lemonbus serve``."""
    LEMONBUS = enum.auto()
    """Only lemonbus, from a model, an option or its own settings."""


class Kind(NamedTuple):
    """The value of a flag: the form that a client's must have, and how our own server reads it."""

    pattern: str
    """Regular expression for the whole value."""
    read: Callable[[str], Value] = str
    files: FileNames = FileNames.NONE
    most: int = 0
    """The largest number allowed, even in the operator's arguments; 0: no limit."""

    def up_to(self, most: int) -> Kind:
        """Return this kind with a largest number."""
        return self._replace(most=most)

    def read_by(self, read: Callable[[str], Value]) -> Kind:
        """Return this kind as our own server reads it."""
        return self._replace(read=read)


class Flag(NamedTuple):
    """One flag."""

    names: str
    """All its names, separated by spaces."""
    kind: Kind | None = None
    """None: a switch, which has no value."""
    target: str = ""
    """Where our own server puts the value; empty: it does not have the flag. Each server says what its targets are."""
    setter: Setter = Setter.CLIENT
    bare: Value = True
    """What a switch means."""
    same_as: str = ""
    """For a flag that lemonbus sets: the name under which the documents forbid it."""
    option: str = ""
    """The load option that sets it."""
    cache_key: bool = True
    """Whether the content of a prompt cache, or its form, depends on it."""


def one_of(*words: str) -> Kind:
    """Return the kind of a flag that accepts one of these words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text} (one of {', '.join(words)})")
        return text

    return Kind("|".join(words), read)


INTEGER: Final = Kind(r"-?\d{1,9}", int)
COUNT: Final = Kind(r"\d{1,9}", int)
NUMBER: Final = Kind(r"-?(\d{1,12}(\.\d{0,12})?|\.\d{1,12})([eE][-+]?\d{1,2})?", float)
WORD: Final = Kind(r"[\w.:+-]{1,64}")
TEXT: Final = Kind(r"[^\0]{1,16384}")
FILE: Final = Kind(r"[^\0]{1,4096}", files=FileNames.ONE)
FILES: Final = FILE._replace(files=FileNames.SEVERAL)
SCALED_FILES: Final = FILE._replace(files=FileNames.SCALED)


def name_of(word: str) -> str:
    """Return the flag that an engine sees in a word: without ``=value``, ``_`` as ``-``."""
    return _with_hyphens(word.split("=", 1)[0])


def _with_hyphens(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


class FlagTable:
    """The flags of one engine.

    A flag that is not in the table is the operator's: a client may not send it, our own server refuses it, and other programs
    get it unread. A kept prompt cache depends on it.
    """

    def __init__(self, *flags: Flag) -> None:
        """Take the declarations. No name may be in two of them."""
        self.flags = flags
        self._by_name = {name: flag for flag in flags for name in flag.names.split()}

    def find(self, name: str) -> Flag | None:
        """Return the flag with this name."""
        return self._by_name.get(name) or self._by_name.get(_with_hyphens(name))

    def names(self, which: Callable[[Flag], object] = lambda _flag: True) -> list[str]:
        """Return all names of the flags for which ``which`` is true."""
        return [name for flag in self.flags if which(flag) for name in flag.names.split()]

    @property
    def forbidden(self) -> list[str]:
        """Names of the flags that only lemonbus sets."""
        return self.names(lambda flag: flag.setter is Setter.LEMONBUS)

    def value_of(self, words: Sequence[str], *names: str) -> str | None:
        """Return the value of the last of some flags in the words, which is the one that counts; None if absent."""
        wanted = [self.find(name) for name in names]
        found: str | None = None
        for index, word in enumerate(words):
            if (flag := self.find(name_of(word))) is not None and flag in wanted:
                found = words[index + 1] if index + 1 < len(words) else ""
        return found

    def last_of(self, words: Sequence[str], *names: str) -> str | None:
        """Return which of some flags comes last in the words, which is the one that counts; None if none of them is there."""
        wanted = {flag: name for name in names if (flag := self.find(name)) is not None}
        found: str | None = None
        for word in words:
            flag = self.find(name_of(word))
            if flag in wanted:
                found = wanted[flag]
        return found

    def parse(self, words: Iterable[str]) -> list[tuple[str, Value]]:
        """Return (target, value) in the order given, as our own server reads them; raises :class:`FlagError`."""
        found: list[tuple[str, Value]] = []
        rest = iter(words)
        for word in rest:
            flag = self.find(word)
            if flag is None or not flag.target:
                raise FlagError(f"unknown argument {word}")
            if flag.kind is None:
                found.append((flag.target, flag.bare))
                continue
            text, read = next(rest, None), flag.kind.read
            if text is None:
                raise FlagError(f"{word} needs a value")
            try:
                found.append((flag.target, read(text)))
            except ValueError as problem:
                raise FlagError(f"{word} cannot be {text if read in (int, float) else problem.args[0]}") from None
        return found
