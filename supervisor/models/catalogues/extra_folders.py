"""Reads the folders of the extra models directory: which of their files are models, by name and first bytes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from protocol.models import repository_files
from workers.backends.recipe import Identity
from workers.backends.registry import DESCRIPTORS, HEAD_BYTES, MODEL_SUFFIXES, identify, identify_parts

FOLDER_RECIPES: Final = {each.folder_file: each.recipe for each in DESCRIPTORS.values() if each.folder_file}
"""File that makes a folder a model → recipe that runs the folder."""
_MAX_DEPTH: Final = 4
_MAX_FOLDERS: Final = 2000
_MOST_READS: Final = 256
"""How many files one refresh opens to identify them, because the supervisor's loop waits.

The next refresh continues from there.
"""
_GGUF: Final = ".gguf"

Identities = dict[tuple[str, int, int], Identity | None]
"""Path, time of change and size of a file → what it is. An unchanged file is not opened again."""


class UnnamedModel(NamedTuple):
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


class FolderReader:
    """One look at the whole directory."""

    def __init__(self, root: Path, known: Identities) -> None:
        """``known``: what was found at the last look."""
        self._root, self._known = root, known
        self._reads = self._unreadable = 0
        self.modified: dict[Path, int] = {}
        """Every folder that was read, and the time of its last change, in nanoseconds."""
        self.identities: Identities = {}
        self.found: list[UnnamedModel] = []
        self.problems: list[str] = []
        self.unusable = ""
        """Why the directory itself cannot be read, in which case there are no models; empty if it can be read."""

    def read(self) -> None:
        """Read all folders."""
        if _is_text(str(self._root)):
            self._read(self._root, 0)
        else:
            self._unreadable = 1
        if self._unreadable:
            self._report(f"{self._unreadable} files or folders are skipped: their names are not UTF-8")

    @property
    def complete(self) -> bool:
        """Whether all files were identified; another look continues from there."""
        return self._reads <= _MOST_READS

    def _report(self, problem: str) -> None:
        self.problems.append(problem_line(problem))

    def _read(self, folder: Path, depth: int) -> None:
        self.modified[folder] = modified(folder)
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
        identities = {item.name: one for item in files if (one := self._identity(item)) is not None}
        if not (depth and self._add_with_parts(folder, [item.name for item in files], identities)):
            self._add_gguf(folder, {name: one for name, one in identities.items() if is_gguf(name)}, depth)
            for name in sorted(name for name in identities if not is_gguf(name)):
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
            if depth == _MAX_DEPTH or len(self.modified) >= _MAX_FOLDERS:
                self._report(f"{item.path} and what is in it are skipped: too deep, or too many folders")
                return
            self._read(Path(item.path), depth + 1)

    def _identity(self, item: os.DirEntry[str]) -> Identity | None:
        try:
            facts = item.stat()
        except OSError:
            return None
        key = (item.path, facts.st_mtime_ns, facts.st_size)
        if key in self._known:
            self.identities[key] = self._known[key]
            return self._known[key]
        self._reads += 1
        if self._reads > _MOST_READS:
            return identify(item.name, b"")
        self.identities[key] = identify(item.name, read_head(item.path))
        return self.identities[key]

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
        registered = self.modified[folder] // 10**9
        recipe = identity.recipe
        self.found.append(
            UnnamedModel(short, folder / file, recipe, labels, registered=registered, mmproj=mmproj, parts=parts)
        )


def problem_line(problem: str) -> str:
    """Return what is wrong in the directory as a line for the log."""
    return f"extra models directory: {problem}"


def is_gguf(name: str) -> bool:
    """Return whether a file has the name of a GGUF file."""
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


def modified(folder: Path) -> int:
    """Return the time of the last change of a folder in nanoseconds, 0 if there is none."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
