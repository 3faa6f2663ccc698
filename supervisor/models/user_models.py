"""``user_models.json``: the models that users registered, in Lemonade's format.

Every write keeps what is in the file and not understood.  Keys are written without ``user.`` and read with or
without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from protocol.failures import Code, Failure
from protocol.models.checkpoints import printable
from supervisor.models import catalogue, state_files
from supervisor.models.catalogue import CatalogueEntry

FILE: Final = "user_models.json"
PREFIX: Final = "user."


class UserModels:
    """The file, and the entries it was last read as."""

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self._path = path
        self._mark: state_files.FileVersion | None = None
        self.entries: dict[str, CatalogueEntry] = {}
        self.problems: list[str] = []
        """What was wrong in the file; the reader of this list empties it."""

    def refresh(self, starting: bool = False) -> bool:
        """Read the file if it was changed; return whether the entries are others now.

        A broken file is moved aside at the start; later the entries of before stay, because somebody may be
        editing it.
        """
        mark = state_files.file_version(self._path)
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            items = state_files.read_json_object(self._path)
        except OSError as problem:
            self.problems.append(f"{FILE} cannot be read: {problem.strerror}")
            return False
        except ValueError as problem:
            self.problems.append(f"{problem}; {state_files.move_broken_file(self._path)}" if starting else str(problem))
            return False
        self.entries = self._entries_of(items, mark.modified // 10**9 if mark else 0)
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
        """Return whether the file says anything of a name, understood or not; raises ``internal_error``."""
        return name in {PREFIX + key.removeprefix(PREFIX) for key in self._read()}

    def put(self, name: str, item: Mapping[str, Any]) -> None:
        """Write an entry; raises ``internal_error`` if the file cannot be read or written, and changes nothing."""
        self._write({**self._without(name), name.removeprefix(PREFIX): item})

    def drop(self, name: str) -> None:
        """Take an entry out; raises like :meth:`put`."""
        self._write(self._without(name))

    def _without(self, name: str) -> dict[str, Any]:
        return {key: item for key, item in self._read().items() if PREFIX + key.removeprefix(PREFIX) != name}

    def _read(self) -> dict[str, Any]:
        try:
            return state_files.read_json_object(self._path)
        except (ValueError, OSError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise Failure(Code.INTERNAL, f"{FILE} cannot be read, so it stays as it is: {reason}").raised() from problem

    def _write(self, items: Mapping[str, Any]) -> None:
        try:
            state_files.replace_file(self._path, msgspec.json.format(msgspec.json.encode(items), indent=2) + b"\n")
        except OSError as problem:
            reason = f"{FILE} could not be written: {problem.strerror}"
            raise Failure(Code.INTERNAL, reason, detail=str(problem)).raised() from problem
        self.refresh()
