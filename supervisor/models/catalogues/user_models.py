"""``user_models.json``: the models that users registered, in Lemonade's format.

Every write keeps items that are not understood. Keys are written without ``user.``, and read with or without it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from protocol.failures import Code, Failure, printable, write_failure
from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.persistence.state_files import FinishWrite, StateFile, finish_write

FILE: Final = "user_models.json"
PREFIX: Final = "user."


class UserModels:
    """The file, and the entries last read from it."""

    def __init__(self, path: Path, finish: FinishWrite = finish_write) -> None:
        """Nothing is read yet. ``finish``: see :class:`supervisor.persistence.state_files.StateFile`."""
        self._file = StateFile(path, finish)
        self.entries: dict[str, CatalogueEntry] = {}
        self.problems: list[str] = self._file.problems
        """Errors in the file. The reader of this list empties it."""

    def refresh(self, starting: bool = False) -> bool:
        """Read the file if it was changed; return whether the entries have changed.

        A broken file is moved aside at the start. Later, the former entries stay, because an editor may be writing the
        file.
        """
        if not self._file.changed():
            return False
        try:
            items = self._file.read()
        except OSError as problem:
            self.problems.append(f"{FILE} cannot be read: {problem.strerror}")
            return False
        except ValueError as problem:
            self.problems.append(f"{problem}; {self._file.move_aside()}" if starting else str(problem))
            return False
        self.entries = self._entries_of(items, self._file.modified)
        return True

    def _entries_of(self, items: Mapping[str, Any], registered: int) -> dict[str, CatalogueEntry]:
        found: dict[str, CatalogueEntry] = {}
        for key, item in items.items():
            name = PREFIX + key.removeprefix(PREFIX)
            try:
                found[name] = catalogue.entry(name, item, registered)
            except ValueError as problem:
                self.problems.append(f"{FILE}: {printable(key)}: {problem}; the entry is skipped")
        return found

    def has(self, name: str) -> bool:
        """Return whether the file has an entry of this name, understood or not; raises ``internal_error``."""
        return name in {PREFIX + key.removeprefix(PREFIX) for key in self._read()}

    def put(self, name: str, item: Mapping[str, Any]) -> None:
        """Write an entry; raises ``internal_error``, and changes nothing, if the file cannot be read or written.

        Raises ValueError if the item is not understood.
        """
        entry = catalogue.entry(name, item, int(time.time()))
        self._write({**self._without(name), name.removeprefix(PREFIX): item})
        self.entries = {**self.entries, name: entry}

    def drop(self, name: str) -> None:
        """Remove an entry; raises like :meth:`put`."""
        self._write(self._without(name))
        self.entries = {known: entry for known, entry in self.entries.items() if known != name}

    def _without(self, name: str) -> dict[str, Any]:
        return {key: item for key, item in self._read().items() if PREFIX + key.removeprefix(PREFIX) != name}

    def _read(self) -> dict[str, Any]:
        self.refresh()
        try:
            return self._file.read()
        except (ValueError, OSError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise Failure(Code.INTERNAL, f"{FILE} cannot be read, so it stays as it is: {reason}").raised() from problem

    def _write(self, items: Mapping[str, Any]) -> None:
        try:
            self._file.replace(items)
        except OSError as problem:
            reason = f"{FILE} could not be written: {problem.strerror}"
            raise write_failure(problem, reason).raised() from problem
