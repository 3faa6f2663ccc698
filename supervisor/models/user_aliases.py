"""``model_names.json``: other names that users gave to models, and the default model for requests that name none.

The names are aliases: two names of one model share its engine, its options and its files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from protocol.failures import Code, Failure, write_failure
from supervisor.persistence.state_files import FinishWrite, StateFile, finish_write, read_json_object

FILE: Final = "model_names.json"
MAX_ALIASES: Final = 1000


class _Names(msgspec.Struct, frozen=True, omit_defaults=True):
    default: str = ""
    aliases: dict[str, str] = {}


def read_aliases(path: Path) -> dict[str, str]:
    """Return the other names in a file without changing it; none if it cannot be read."""
    try:
        return msgspec.convert(read_json_object(path), _Names).aliases
    except (ValueError, OSError):
        return {}


class UserAliases:
    """The file, and what was last read from it."""

    def __init__(self, path: Path, finish: FinishWrite = finish_write) -> None:
        """Read the file. A broken one is moved aside. ``finish``: see :class:`supervisor.persistence.state_files.StateFile`."""
        self._file = StateFile(path, finish)
        self.problems: list[str] = self._file.problems
        """Errors in the file. The reader of this list empties it."""
        self._names = _Names()
        self._read()

    def _read(self) -> None:
        self._names = self._file.load(_Names) or _Names()

    @property
    def default(self) -> str:
        """The default model, as it was named; empty if there is none."""
        return self._names.default

    @property
    def aliases(self) -> dict[str, str]:
        """Alias → registered name of its model, which may be gone."""
        return self._names.aliases

    def set_default(self, name: str) -> None:
        """Make a model the default one; an empty name removes the default.

        Raises ``internal_error``, in which case nothing changes.
        """
        self._read_again()
        self._write(_Names(name, self.aliases))

    def add_alias(self, alias: str, model: str) -> None:
        """Give a model another name, which may have been another model's; raises as :meth:`set_default`, and ``conflict``."""
        self._read_again()
        if len(self.aliases) >= MAX_ALIASES and alias not in self.aliases:
            reason = f"there are already {MAX_ALIASES} other names of models: delete one first"
            raise Failure(Code.CONFLICT, reason, model=model).raised()
        self._write(_Names(self.default, {**self.aliases, alias: model}))

    def drop_alias(self, alias: str) -> None:
        """Remove one name; raises as :meth:`set_default`."""
        self._read_again()
        kept = {name: model for name, model in self.aliases.items() if name != alias}
        self._write(_Names("" if self.default == alias else self.default, kept))

    def forget(self, model: str) -> None:
        """Remove all other names of a model that is deleted; raises as :meth:`set_default`."""
        self._read_again()
        for alias in self.of(model):
            self.drop_alias(alias)

    def of(self, model: str) -> list[str]:
        """Return the other names of a model."""
        return [alias for alias, name in self.aliases.items() if name == model]

    def _read_again(self) -> None:
        """If the file could not be read, try again, because it is going to be replaced."""
        if self._file.readable_again():
            self._read()

    def _write(self, names: _Names) -> None:
        if names == self._names and not self._file.failed:
            return
        try:
            self._file.replace(msgspec.to_builtins(names))
        except OSError as problem:
            reason = f"{FILE} could not be written: {problem.strerror}"
            raise write_failure(problem, reason).raised() from problem
        self._names = names
