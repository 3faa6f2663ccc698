"""``remote_models.json``: the models of other servers (``[remotes.NAME]``), as each of them has listed them last.

The file keeps them while a server is away, and for the next start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from protocol.failures import write_failure
from protocol.messages.remote_models import RemoteModel
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.persistence.state_files import FinishWrite, StateFile, finish_write
from workers.backends.registry import DESCRIPTORS

FILE: Final = "remote_models.json"
_RECIPE: Final = next(each.recipe for each in DESCRIPTORS.values() if each.elsewhere)


class RemoteModels:
    """The file, and the entries of the servers that the configuration names."""

    def __init__(self, path: Path, remotes: Iterable[str], finish: FinishWrite = finish_write) -> None:
        """Read the file. A broken one is moved aside. ``remotes``: the names of the sections."""
        self._file = StateFile(path, finish)
        self.problems: list[str] = self._file.problems
        """Errors in the file. The reader of this list empties it."""
        self._remotes = frozenset(remotes)
        self._models: dict[str, list[RemoteModel]] = {}
        if self._remotes:
            self._read()

    def _read(self) -> None:
        self._models = self._file.load(dict[str, list[RemoteModel]]) or {}

    @property
    def entries(self) -> dict[str, CatalogueEntry]:
        """The entries by their names, ``REMOTE/MODEL``."""
        return {
            f"{remote}/{model.id}": CatalogueEntry(
                name=f"{remote}/{model.id}",
                checkpoint="",
                recipe=_RECIPE,
                labels=list(model.labels),
                suggested=True,
                configured=True,
            )
            for remote in sorted(self._remotes)
            for model in self._models.get(remote, [])
        }

    def listed(self, remote: str) -> bool:
        """Return whether models of a server are listed."""
        return remote in self._remotes and bool(self._models.get(remote))

    def take(self, remote: str, models: Sequence[RemoteModel]) -> bool:
        """Take the list of a server; return whether it differs. Raises ``internal_error`` if it cannot be written."""
        if read := self._file.readable_again():
            self._read()
        unchanged = self._models.get(remote) == list(models) and not self._file.failed
        if remote not in self._remotes or unchanged:
            return read
        changed = {name: listed for name, listed in self._models.items() if name in self._remotes} | {
            remote: list(models)
        }
        try:
            self._file.replace(msgspec.to_builtins(changed))
        except OSError as problem:
            reason = f"{FILE} could not be written: {problem.strerror}"
            raise write_failure(problem, reason).raised() from problem
        self._models = changed
        return True
