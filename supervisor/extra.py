"""The extra models directory: every GGUF file in it, and every ggml file of whisper.cpp, can be named ``extra.STEM``.

Nothing has to be registered.  A folder with one GGUF model (shards count as one) gives it the folder's name, and a
``mmproj*.gguf`` beside it makes it a vision model.  A folder with a ``genai_config.json`` is a model of ONNX Runtime
GenAI.  Folders are looked through four deep, and again only when one of them was changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from protocol import checkpoints
from supervisor.catalogue import LONGEST_NAME, Entry

PREFIX: Final = "extra."
FOLDERS: Final = "oga-cpu"
"""What runs a folder of ONNX Runtime GenAI."""
HEARERS: Final = "whispercpp"
"""What runs a ggml file of whisper.cpp."""
_HEARS: Final = ".bin"
_DEEPEST: Final = 4
_MOST_FOLDERS: Final = 2000
_MOST_LOOKS: Final = 256
"""Files that are opened to see what they are: anything may be called ``.bin``, and the supervisor waits."""
_SETTLED: Final = 2.0
"""A folder changed less than this many seconds before it was read may change again under the same time stamp."""


class ExtraModels:
    """The models found in one directory."""

    def __init__(self, directory: str, recipe: str = "llamacpp") -> None:
        """Look nowhere if ``directory`` is empty."""
        self._root = Path(directory) if directory else None
        self._recipe = recipe
        self._seen: dict[Path, int] = {}
        self._trusted = False
        self._looks = 0
        self.entries: dict[str, Entry] = {}
        self.problems: list[str] = []
        """What is wrong, as of the last time the directory was read."""

    def refresh(self) -> bool:
        """Read the directory again if it was changed; return whether it was read."""
        if self._root is None or (self._trusted and all(_modified(path) == when for path, when in self._seen.items())):
            return False
        self._seen, self.entries, self.problems = {}, {}, []
        self._looks = 0
        began = time.time_ns()
        self._read(self._root, 0)
        if self._looks > _MOST_LOOKS:
            self.problems.append(f"extra models directory: of its .bin files only {_MOST_LOOKS} were looked at")
        self._trusted = all(began - when > _SETTLED * 1e9 for when in self._seen.values())
        return True

    def _read(self, folder: Path, depth: int) -> None:
        self._seen[folder] = _modified(folder)
        try:
            with os.scandir(folder) as found:
                items = sorted(found, key=lambda item: item.name)
        except OSError as problem:
            self.problems.append(f"extra models directory: {folder}: {problem.strerror}")
            return
        files = [item.name for item in items if item.name.lower().endswith(".gguf") and _holds(item.is_file)]
        self._add(folder, files, depth)
        for item in items:
            if item.name.lower().endswith(_HEARS) and _holds(item.is_file) and self._hears(item.path):
                self._add_hearer(folder, item.name)
        if any(item.name == checkpoints.GENAI and _holds(item.is_file) for item in items):
            self._add_folder(folder)
            return
        for item in items:
            if item.name.startswith(".") or not _holds(item.is_dir):
                continue
            if depth == _DEEPEST or len(self._seen) >= _MOST_FOLDERS:
                self.problems.append(f"extra models directory: {item.path} and what is in it are too deep or too many")
                return
            self._read(Path(item.path), depth + 1)

    def _hears(self, path: str) -> bool:
        self._looks += 1
        return self._looks <= _MOST_LOOKS and _is_ggml(path)

    def _add(self, folder: Path, files: list[str], depth: int) -> None:
        models = {checkpoints.stem(file): file for file in reversed(files) if not checkpoints.is_projector(file)}
        there = frozenset(files)
        projectors = [file for file in files if checkpoints.is_projector(file)]
        for stem, file in sorted(models.items()):
            alone = len(models) == 1
            name = PREFIX + (folder.name if alone and depth else stem)
            mmproj = str(folder / projectors[0]) if projectors and (alone or depth) else ""
            problem = self._problem(name, file, there)
            if problem:
                self.problems.append(f"extra models directory: {folder / file} {problem}")
                continue
            self.entries[name] = Entry(
                name=name,
                checkpoint=file,
                recipe=self._recipe,
                labels=_labels(name, bool(mmproj)),
                registered=self._seen[folder] // 10**9,
                path=str(folder / file),
                mmproj=mmproj,
            )

    def _add_folder(self, folder: Path) -> None:
        name = PREFIX + folder.name
        problem = self._problem_of_name(name)
        if problem:
            self.problems.append(f"extra models directory: {folder} {problem}")
            return
        self.entries[name] = Entry(
            name=name,
            checkpoint=folder.name,
            recipe=FOLDERS,
            labels=["custom"],
            registered=self._seen[folder] // 10**9,
            path=str(folder / checkpoints.GENAI),
        )

    def _add_hearer(self, folder: Path, file: str) -> None:
        name = PREFIX + file[: -len(_HEARS)]
        problem = self._problem_of_name(name)
        if problem:
            self.problems.append(f"extra models directory: {folder / file} {problem}")
            return
        self.entries[name] = Entry(
            name=name,
            checkpoint=file,
            recipe=HEARERS,
            labels=["custom", "transcription"],
            registered=self._seen[folder] // 10**9,
            path=str(folder / file),
        )

    def _problem(self, name: str, file: str, files: frozenset[str]) -> str:
        if not checkpoints.whole(file, files):
            return self._problem_of_name(name) or "is one of several shards, and not all of them are there"
        return self._problem_of_name(name)

    def _problem_of_name(self, name: str) -> str:
        if len(name) > LONGEST_NAME or not name.isprintable():
            return "has a name that cannot be shown"
        return f"is not used: {name} is another file already" if name in self.entries else ""


def _holds(question: Callable[[], bool]) -> bool:
    """Return what the disk says of an item; no to a link that goes in circles, or where nobody may look."""
    try:
        return question()
    except OSError:
        return False


def _is_ggml(path: str) -> bool:
    """Return whether a file is whisper.cpp's: the end of its name is anybody's."""
    try:
        # Whoever puts a pipe in its place meanwhile is not waited for.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(file, len(checkpoints.GGML)) == checkpoints.GGML
        finally:
            os.close(file)
    except OSError:
        return False


def _modified(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _labels(name: str, vision: bool) -> list[str]:
    """Return what a name tells about its model, by the rule that the variants of a repository follow."""
    lowered = name.lower()
    found = ["custom"]
    if vision:
        found.append("vision")
    if "rerank" in lowered:
        found.append("reranking")
    elif "embed" in lowered:
        found.append("embeddings")
    return found
