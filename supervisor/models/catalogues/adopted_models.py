"""Models that no catalogue has, adopted when a client names a checkpoint or a file of this machine.

A checkpoint whose files are here is kept in ``adopted_models.json``, so that it is listed and can be deleted after a
restart. A checkpoint whose files are still to come, or a file that is named by its path, is known until the server
ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from protocol.failures import Code, Failure, LemonbusError, invalid, printable, write_failure
from protocol.models.recipes import ModelSpec
from supervisor.models.catalogues import catalogue, extra_models, user_models
from supervisor.models.catalogues.catalogue import MAX_NAME_LENGTH, CatalogueEntry
from supervisor.models.names import LATEST, NameIndex, bare_checkpoint
from supervisor.persistence.state_files import FinishWrite, StateFile, finish_write
from workers.backends.registry import DESCRIPTORS, HEAD_BYTES, identify
from workers.backends.user_arguments import is_below

FILE: Final = "adopted_models.json"
MAX_ADOPTED: Final = 256
"""How many models may be adopted at a time. The oldest is forgotten first, but those whose files are here last."""
_RESERVED: Final = (user_models.PREFIX, extra_models.PREFIX)
"""Prefixes of names that models get elsewhere: an adopted model would hide them."""


class AdoptedModels:
    """The adopted entries: makes them, adds them to the index of names, and keeps those whose files are here."""

    def __init__(
        self,
        path: Path,
        directories: Sequence[str],
        find: Callable[[str], CatalogueEntry | None],
        index: Callable[[], NameIndex],
        finish: FinishWrite = finish_write,
    ) -> None:
        """Read the file ``path``; a broken one is moved aside.

        ``directories``: those whose files a client may name. ``find`` returns the entry that a name means, ``index``
        the present names. ``finish``: see :class:`supervisor.persistence.state_files.StateFile`.
        """
        self._file = StateFile(path, finish)
        self._directories, self._find, self._index = directories, find, index
        self.problems: list[str] = self._file.problems
        """Errors in the file. The reader of this list empties it."""
        self.entries = self._read()
        self._kept = set(self.entries)

    def _read(self) -> dict[str, CatalogueEntry]:
        found: dict[str, CatalogueEntry] = {}
        for name, item in (self._file.load(dict[str, Any]) or {}).items():
            try:
                found[name] = catalogue.entry(name, item)
            except ValueError as problem:
                self.problems.append(f"{FILE}: {printable(name)}: {problem}; the entry is skipped")
        return found

    def _read_again(self) -> None:
        """If the file could not be read, try again, because it is going to be replaced."""
        for name, entry in self._read().items() if self._file.readable_again() else ():
            if name not in self.entries:
                self.entries[name] = entry
                if self._find(name) is None:
                    self._index().add(entry)
            if not self.entries[name].path:
                self._kept.add(name)

    # Adopting and forgetting

    def adopt_checkpoint(self, name: str, recipe: str) -> CatalogueEntry:
        """Return a new entry of a checkpoint under its own name; raises ``invalid_request`` if it is not a checkpoint."""
        checkpoint = bare_checkpoint(name).removesuffix(LATEST)
        try:
            return self._add(catalogue.entry(checkpoint, {"checkpoint": checkpoint, "recipe": recipe}))
        except ValueError as problem:
            raise invalid(str(problem), "model") from None

    def adopt_file(self, name: str, path: str, mmproj: str = "") -> CatalogueEntry:
        """Return the entry of a file of this machine under a name that the caller chose.

        A model of the extra models directory, under its own name, is that entry itself. Raises ``invalid_request`` for
        a file that a client may not name or that is not a model, and ``conflict`` if the name is another model's.
        """
        known = self._find(name)
        if known is not None and known.name not in self.entries:
            if (known.path, known.mmproj) == (path, mmproj or known.mmproj):
                return known
            reason = f"{printable(name)} is a name of model {known.name} already: choose another one for this file"
            raise Failure(Code.CONFLICT, reason, model=known.name, param="alias").raised()
        return self._add(self._file_entry(name, path, mmproj))

    def _add(self, entry: CatalogueEntry) -> CatalogueEntry:
        self.forget(entry.name)
        while len(self.entries) >= MAX_ADOPTED:
            self.forget(next((name for name in self.entries if name not in self._kept), next(iter(self.entries))))
        self.entries[entry.name] = entry
        self._index().add(entry)
        return entry

    def restore(self, spec: ModelSpec) -> None:
        """Add the entry of a model that an earlier supervisor had loaded, if nothing else knows the model."""
        if self._find(spec.name) is not None or spec.engine:
            return
        if "/" in spec.name:
            self.adopt_checkpoint(spec.name, spec.recipe)
        else:
            checkpoint = Path(spec.path).name
            self._add(
                CatalogueEntry(
                    spec.name, checkpoint, spec.recipe, labels=spec.labels, path=spec.path, mmproj=spec.mmproj
                )
            )

    def keep(self, name: str) -> None:
        """Keep an adopted checkpoint beyond the server's end: its files are here. Does nothing for any other model.

        Raises ``internal_error`` if that cannot be written.
        """
        self._read_again()
        entry = self.entries.get(name)
        if entry is not None and not entry.path and (name not in self._kept or self._file.failed):
            self._write(self._kept | {name})

    def forget(self, name: str) -> None:
        """If an adopted entry has this name, forget it; raises ``internal_error``, in which case it stays."""
        self._read_again()
        if name in self._kept:
            self._write(self._kept - {name})
        adopted = self.entries.pop(name, None)
        if adopted is not None:
            self._index().remove(adopted)

    def is_kept(self, name: str) -> bool:
        """Return whether a model of this name is kept beyond the server's end."""
        return name in self._kept

    def _write(self, kept: set[str]) -> None:
        items = {
            name: {"checkpoint": entry.checkpoint, "recipe": entry.recipe}
            for name, entry in self.entries.items()
            if name in kept
        }
        try:
            self._file.replace(items)
        except OSError as problem:
            reason = f"{FILE} could not be written: {problem.strerror}"
            raise write_failure(problem, reason).raised() from problem
        self._kept = kept

    # Files of this machine

    def _file_entry(self, name: str, path: str, mmproj: str) -> CatalogueEntry:
        if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable() or "/" in name or name.endswith(LATEST):
            reason = f"must be at most {MAX_NAME_LENGTH} printable characters, without slashes and {LATEST}"
            raise invalid(f"the name of a file {reason}", "alias")
        if name.startswith(_RESERVED):
            raise invalid(f"the name of a file must not begin with {' or '.join(_RESERVED)}", "alias")
        self._check(path, "path")
        identity = identify(Path(path).name, self._head(path))
        if identity is None or not identity.recipe:
            raise invalid("`path` is not a model that any recipe runs", "path")
        if mmproj:
            self._check(mmproj, "mmproj")
            if not DESCRIPTORS[identity.recipe].projector:
                raise invalid(f"a model of recipe {identity.recipe} has no `mmproj`", "mmproj")
        labels = [*identity.labels, *(["vision"] if mmproj and "vision" not in identity.labels else [])]
        return CatalogueEntry(name, Path(path).name, identity.recipe, labels=labels, path=path, mmproj=mmproj)

    def _check(self, path: str, param: str) -> None:
        # The same message for missing and forbidden files, because it must not tell which files this machine has.
        if not is_below(path, self._directories) or not os.path.isfile(path):  # noqa: PTH113 - raises nothing
            raise invalid(
                f"`{param}` must be a file below the extra models directory, the hub's cache or a directory of the"
                " setting engine_file_dirs",
                param,
            )

    @staticmethod
    def _head(path: str) -> bytes:
        try:
            with Path(path).open("rb") as file:
                return file.read(HEAD_BYTES)
        except OSError as problem:
            message = f"`path` cannot be read: {problem.strerror}"
            raise LemonbusError(Failure(Code.INVALID_REQUEST, message, param="path")) from None
