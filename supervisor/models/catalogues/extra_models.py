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

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from protocol.models import repository_files
from supervisor.models.catalogues.catalogue import MAX_NAME_LENGTH, CatalogueEntry
from workers.backends.recipe import Identity
from workers.backends.registry import DESCRIPTORS, HEAD_BYTES, MODEL_SUFFIXES, identify, identify_parts

PREFIX: Final = "extra."
FOLDER_RECIPES: Final = {each.folder_file: each.recipe for each in DESCRIPTORS.values() if each.folder_file}
"""File that makes a folder a model → recipe that runs the folder."""
_MAX_DEPTH: Final = 4
_MAX_FOLDERS: Final = 2000
_MOST_READS: Final = 256
"""How many files one refresh opens to identify them, because the supervisor's loop waits.

The next refresh continues from there.
"""
_SETTLED_S: Final = 2.0
"""If a folder was changed less than this many seconds before it was read, another change may get the same time stamp."""
_GGUF: Final = ".gguf"
_SLOW_CHECK_S = 0.05
"""A check of the directory that takes longer than this is slow."""
_CHECK_PAUSE: Final = 20
"""After a slow check of one second, none follows for this many seconds."""


class _Found(NamedTuple):
    """A model in the directory, before it has a name."""

    short: str
    path: Path
    """The (first) file."""
    recipe: str
    labels: tuple[str, ...]
    registered: int
    mmproj: str = ""
    parts: Mapping[str, str] = {}
    """Part of the model → its file."""


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
        self._reads = 0
        self._identities: dict[tuple[str, int, int], Identity | None] = {}
        """Path, time of change and size of a file → what it is. An unchanged file is not opened again."""
        self._found: list[_Found] = []
        self._unreadable = 0
        self.entries: dict[str, CatalogueEntry] = {}
        self.problems: list[str] = []
        """What was wrong when the directory was last read."""
        self.unusable = ""
        """Why the directory itself could not be read then, so that there is no model; empty if it could."""

    def refresh(self) -> bool:
        """If the directory was changed, read it again; return whether it was read."""
        unchanged = self._settled and all(_modified(path) == when for path, when in self._modified.items())
        if self._root is None or unchanged:
            return False
        self._modified, self._found, self.problems, self.unusable = {}, [], [], ""
        self._reads = self._unreadable = 0
        known = self._identities
        self._identities = {}
        began = time.time_ns()
        if _is_text(str(self._root)):
            self._read(self._root, 0, known)
        else:
            self._unreadable = 1
        if self._unreadable:
            self._report(f"{self._unreadable} files or folders are skipped: their names are not UTF-8")
        self.entries = self._named()
        quiet = all(began - when > _SETTLED_S * 1e9 for when in self._modified.values())
        self._settled = quiet and self._reads <= _MOST_READS
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
        return any(_modified(folder) != known[folder] for folder in (self._root, Path(path).parent) if folder in known)

    def _report(self, problem: str) -> None:
        self.problems.append(f"extra models directory: {problem}")

    # Finding

    def _read(self, folder: Path, depth: int, known: dict[tuple[str, int, int], Identity | None]) -> None:
        self._modified[folder] = _modified(folder)
        try:
            with os.scandir(folder) as found:
                every = sorted(found, key=lambda item: item.name)
        except OSError as problem:
            self._report(f"{folder}: {problem.strerror}")
            if not depth:
                self.unusable = (
                    f"extra_models_dir {folder} cannot be read, so its models are not known: {problem.strerror}"
                )
            return
        items = [item for item in every if _is_text(item.name)]
        self._unreadable += len(every) - len(items)
        files = [item for item in items if item.name.lower().endswith(MODEL_SUFFIXES) and _is_true(item.is_file)]
        identities = {item.name: one for item in files if (one := self._identity(item, known)) is not None}
        if not (depth and self._add_with_parts(folder, [item.name for item in files], identities)):
            self._add_gguf(folder, {name: one for name, one in identities.items() if _is_gguf(name)}, depth)
            for name in sorted(name for name in identities if not _is_gguf(name)):
                self._add(folder, name.rpartition(".")[0], name, identities[name])
        if any(item.name == repository_files.GENAI_CONFIG and _is_true(item.is_file) for item in items):
            self._add(
                folder,
                folder.name,
                repository_files.GENAI_CONFIG,
                Identity(FOLDER_RECIPES[repository_files.GENAI_CONFIG]),
            )
            return
        for item in items:
            if item.name.startswith(".") or not _is_true(item.is_dir):
                continue
            if depth == _MAX_DEPTH or len(self._modified) >= _MAX_FOLDERS:
                self._report(f"{item.path} and what is in it are skipped: too deep, or too many folders")
                return
            self._read(Path(item.path), depth + 1, known)

    def _identity(self, item: os.DirEntry[str], known: dict[tuple[str, int, int], Identity | None]) -> Identity | None:
        try:
            facts = item.stat()
        except OSError:
            return None
        key = (item.path, facts.st_mtime_ns, facts.st_size)
        if key in known:
            self._identities[key] = known[key]
            return known[key]
        self._reads += 1
        if self._reads > _MOST_READS:
            return identify(item.name, b"")
        self._identities[key] = identify(item.name, read_head(item.path))
        return self._identities[key]

    def _add_with_parts(self, folder: Path, files: list[str], identities: dict[str, Identity]) -> bool:
        """Add the files of one folder as one model of several files, if they are that; return whether they are."""
        mains = [name for name, one in identities.items() if one.recipe and DESCRIPTORS[one.recipe].parts]
        if len(mains) != 1 or len(files) > 1 + len(DESCRIPTORS[identities[mains[0]].recipe].parts):
            return False
        found = identities[mains[0]]
        heads = {name: read_head(str(folder / name)) for name in files}
        parts = {part: str(folder / name) for part, name in identify_parts(found.recipe, mains[0], heads).items()}
        if parts:
            self._add(folder, folder.name, mains[0], found, parts=parts)
        return bool(parts)

    def _add_gguf(self, folder: Path, identities: dict[str, Identity], depth: int) -> None:
        """Add the GGUF models of one folder."""
        projectors = [name for name, one in identities.items() if repository_files.is_projector(name) or not one.recipe]
        there = frozenset(identities)
        models: dict[str, str] = {}
        for file in sorted(there.difference(projectors), reverse=True):
            models[repository_files.stem(file)] = file
        alone = len(models) == 1
        for stem, file in sorted(models.items()):
            if not repository_files.complete_shards(file, there):
                self._report(f"{folder / file} is one of several shards, and not all of them are there")
                continue
            mmproj = str(folder / projectors[0]) if projectors and (alone or depth) else ""
            self._add(folder, folder.name if alone and depth else stem, file, identities[file], mmproj)

    def _add(
        self,
        folder: Path,
        short: str,
        file: str,
        identity: Identity,
        mmproj: str = "",
        parts: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        labels = ("custom", *(["vision"] if mmproj else []), *identity.labels)
        registered = self._modified[folder] // 10**9
        recipe = identity.recipe
        self._found.append(
            _Found(short, folder / file, recipe, labels, registered=registered, mmproj=mmproj, parts=parts)
        )

    # Naming

    def _named(self) -> dict[str, CatalogueEntry]:
        """Give every model its name: the short one, or its path if several would have the same short name."""
        shared = Counter(found.short for found in self._found)
        entries: dict[str, CatalogueEntry] = {}
        for found in self._found:
            name = PREFIX + (found.short if shared[found.short] == 1 else self._by_path(found))
            problem = _problem_of(name, entries)
            if problem:
                self._report(f"{found.path} {problem}")
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

    def _by_path(self, found: _Found) -> str:
        folder = "" if self._root is None else str(found.path.parent.relative_to(self._root))
        if found.path.name == repository_files.GENAI_CONFIG:
            return folder
        stem = repository_files.stem(found.path.name) if _is_gguf(found.path.name) else found.path.stem
        return stem if folder == "." else f"{folder}/{stem}"


def _problem_of(name: str, entries: dict[str, CatalogueEntry]) -> str:
    if len(name) > MAX_NAME_LENGTH or not name.isprintable():
        return "has a name that cannot be shown"
    return f"is not used: another file is {name} already" if name in entries else ""


def _is_gguf(name: str) -> bool:
    return name.lower().endswith(_GGUF)


def _is_text(name: str) -> bool:
    """Return whether a name is UTF-8.

    Python turns other bytes in a name into lone surrogates, which no message can carry.
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_true(question: Callable[[], bool]) -> bool:
    """Return the file system's answer about an item: no for a circular link, or without permission."""
    try:
        return question()
    except OSError:
        return False


def read_head(path: str) -> bytes:
    """Return the first bytes of a file; nothing if it cannot be read."""
    try:
        # O_NONBLOCK: a pipe may have replaced the file meanwhile.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(file, HEAD_BYTES)
        finally:
            os.close(file)
    except OSError:
        return b""


def _modified(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
