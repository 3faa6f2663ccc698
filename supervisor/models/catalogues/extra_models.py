"""The extra models directory: every model file in it can be named ``extra.STEM``, without registration.

The first bytes of a file tell what it is (``workers/backends/registry.py``): GGUF files of llama.cpp and of
stable-diffusion.cpp, safetensors files of diffusion models, ggml files of whisper.cpp. If a folder has one GGUF model
(shards count as one), the model gets the folder's name; a vision projector in the same folder makes it a vision model.
If all model files of a folder are one diffusion model and different parts of it, the folder is one model. A folder with
a ``genai_config.json`` is a model of ONNX Runtime GenAI. If two models would have the same name, those in
folders are named by their whole path: ``extra.FOLDER/STEM``. Folders are read four deep, and read again only after a
change.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from protocol.models import repository_files
from supervisor.models.catalogues.catalogue import MAX_NAME_LENGTH, CatalogueEntry
from supervisor.models.catalogues.extra_folders import (
    FolderReader,
    Identities,
    UnnamedModel,
    is_gguf,
    modified,
    problem_line,
)

PREFIX: Final = "extra."
_SETTLED_S: Final = 2.0
"""If a folder was changed less than this many seconds before it was read, another change may get the same time stamp."""
_SLOW_CHECK_S = 0.05
"""A check of the directory that takes longer than this is slow."""
_CHECK_PAUSE: Final = 20
"""After a slow check of one second, none follows for this many seconds."""


class ExtraModels:
    """The models found in one directory."""

    def __init__(self, directory: str) -> None:
        """Find nothing if ``directory`` is empty."""
        self._root = Path(directory) if directory else None
        self._modified: dict[Path, int] = {}
        """Every folder that was read, and the time of its last change, in nanoseconds."""
        self._settled = False
        self._next_check = 0.0
        """Time (``time.monotonic``) before which :meth:`refresh_sometimes` does not look at all folders again."""
        self._identities: Identities = {}
        self.entries: dict[str, CatalogueEntry] = {}
        self.problems: list[str] = []
        """What was wrong when the directory was last read."""
        self.unusable = ""
        """Why the directory itself could not be read then, so that there is no model; empty if it could."""

    def refresh(self) -> bool:
        """If the directory was changed, read it again; return whether it was read."""
        unchanged = self._settled and all(modified(path) == when for path, when in self._modified.items())
        if self._root is None or unchanged:
            return False
        began = time.time_ns()
        reader = FolderReader(self._root, self._identities)
        reader.read()
        self._modified, self._identities, self.unusable = reader.modified, reader.identities, reader.unusable
        self.problems = list(reader.problems)
        self.entries = self._named(reader.found)
        quiet = all(began - when > _SETTLED_S * 1e9 for when in self._modified.values())
        self._settled = quiet and reader.complete
        return True

    def refresh_sometimes(self, path: str) -> bool:
        """Read the directory again if it was changed, like :meth:`refresh`, but spare the loop if this takes long.

        A check is one ``stat`` call for every folder. If it takes long (thousands of folders, a slow disk, a busy
        machine), at most a twentieth of the loop's time is spent on checks. Until the next one, the directory itself
        and the folder of the file ``path`` are still checked every time, so that what was just put there, or removed,
        counts.
        """
        began = time.monotonic()
        if began < self._next_check and not self.changed_near(path):
            return False
        changed = self.refresh()
        ended = time.monotonic()
        if ended - began > _SLOW_CHECK_S:
            self._next_check = ended + _CHECK_PAUSE * (ended - began)
        return changed

    def changed_near(self, path: str) -> bool:
        """Return whether the directory itself, or the folder of the file ``path`` in it, was changed since it was read.

        Two ``stat`` calls, however many folders there are.
        """
        if self._root is None:
            return False
        known = self._modified
        return any(modified(folder) != known[folder] for folder in (self._root, Path(path).parent) if folder in known)

    def _named(self, models: Sequence[UnnamedModel]) -> dict[str, CatalogueEntry]:
        """Give every model its name: the short one, or its path if several would have the same short name."""
        shared = Counter(found.short for found in models)
        entries: dict[str, CatalogueEntry] = {}
        for found in models:
            name = PREFIX + (found.short if shared[found.short] == 1 else self._by_path(found))
            problem = _problem_of(name, entries)
            if problem:
                self.problems.append(problem_line(f"{found.path} {problem}"))
                continue
            folder = found.path.name == repository_files.GENAI_CONFIG
            entries[name] = CatalogueEntry(
                name=name,
                checkpoint=found.path.parent.name if folder else found.path.name,
                recipe=found.recipe,
                labels=list(found.labels),
                registered=found.registered,
                path=str(found.path),
                mmproj=found.mmproj,
                parts=dict(found.parts),
            )
        return entries

    def _by_path(self, found: UnnamedModel) -> str:
        folder = "" if self._root is None else str(found.path.parent.relative_to(self._root))
        if found.path.name == repository_files.GENAI_CONFIG:
            return folder
        stem = repository_files.stem(found.path.name) if is_gguf(found.path.name) else found.path.stem
        return stem if folder == "." else f"{folder}/{stem}"


def _problem_of(name: str, entries: dict[str, CatalogueEntry]) -> str:
    if len(name) > MAX_NAME_LENGTH or not name.isprintable():
        return "has a name that cannot be shown"
    return f"is not used: another file is {name} already" if name in entries else ""
