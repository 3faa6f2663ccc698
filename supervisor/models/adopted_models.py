"""Models that no catalogue has, adopted when a client names a checkpoint or a file: known until the server ends."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.models.checkpoints import printable
from supervisor.models import catalogue
from supervisor.models.catalogue import MAX_NAME_LENGTH, CatalogueEntry
from supervisor.models.names import LATEST, bare_checkpoint
from workers.backends.client_arguments import is_below
from workers.backends.file_identification import HEAD, identify
from workers.backends.registry import DESCRIPTORS

MAX_ADOPTED: Final = 256
"""Models that may be adopted at a time; the oldest is forgotten first."""


class AdoptedModels:
    """The adopted entries, and how they are made. The registry adds and removes them."""

    def __init__(self, directories: Sequence[str]) -> None:
        """``directories``: those whose files a client may name."""
        self._directories = directories
        self.entries: dict[str, CatalogueEntry] = {}

    def add(self, entry: CatalogueEntry) -> list[CatalogueEntry]:
        """Adopt an entry; return those that are forgotten for it: one of its name, and the oldest of too many."""
        forgotten = [self.entries.pop(entry.name)] if entry.name in self.entries else []
        while len(self.entries) >= MAX_ADOPTED:
            forgotten.append(self.entries.pop(next(iter(self.entries))))
        self.entries[entry.name] = entry
        return forgotten

    def checkpoint_entry(self, name: str, recipe: str) -> CatalogueEntry:
        """Return the entry of a checkpoint, under its own name; raises ``invalid_request`` for what is none."""
        checkpoint = bare_checkpoint(name).removesuffix(LATEST)
        try:
            return catalogue.entry(checkpoint, {"checkpoint": checkpoint, "recipe": recipe})
        except ValueError as problem:
            raise invalid(str(problem), "model") from None

    def file_entry(self, name: str, path: str, mmproj: str, known: CatalogueEntry | None) -> CatalogueEntry:
        """Return the entry of a file of this machine under a name; ``known``: what the name means already.

        Raises ``invalid_request`` for a file that a client may not name or that is no model, and ``conflict`` if the name
        is another model's.
        """
        if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable() or "/" in name or name.endswith(LATEST):
            reason = f"must be at most {MAX_NAME_LENGTH} printable characters, without slashes and {LATEST}"
            raise invalid(f"the name of a file {reason}", "alias")
        if known is not None and known.path != path and known.name not in self.entries:
            reason = f"{printable(name)} is a name of model {known.name} already: choose another one for this file"
            raise Failure(Code.CONFLICT, reason, model=known.name, param="alias").raised()
        self._check(path, "path")
        identity = identify(Path(path).name, self._head(path))
        if identity is None or not identity.recipe:
            raise invalid("`path` is no model that any recipe runs", "path")
        if mmproj:
            self._check(mmproj, "mmproj")
            if not DESCRIPTORS[identity.recipe].projector:
                raise invalid(f"a model of recipe {identity.recipe} has no `mmproj`", "mmproj")
        labels = [*identity.labels, *(["vision"] if mmproj and "vision" not in identity.labels else [])]
        return CatalogueEntry(name, Path(path).name, identity.recipe, labels=labels, path=path, mmproj=mmproj)

    def _check(self, path: str, param: str) -> None:
        # One message for what is missing and what is forbidden: it must not tell which files this machine has.
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
                return file.read(HEAD)
        except OSError as problem:
            message = f"`path` cannot be read: {problem.strerror}"
            raise LemonbusError(Failure(Code.INVALID_REQUEST, message, param="path")) from None
