"""Where the files of the head's models are on this node, and whether they are there."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from protocol.messages.model_transfer import FileRoot, FilesPresent, TransferFile
from workers.jobs import disk
from workers.jobs.errors import SourceError

OTHER_FILES: Final = "node_files"
"""The folder in the cache directory for files that are in neither cache on the head."""
_PARTIAL: Final = ".incomplete"
_NS: Final = 1_000_000_000


class FilePlace(NamedTuple):
    """Where a copy of a file goes. ``link`` is the name of a blob of the hub's cache; None if the file itself has the name."""

    path: Path
    link: Path | None

    @property
    def content(self) -> Path:
        """The path that has the bytes."""
        return self.link or self.path


class NodeFolders(NamedTuple):
    """The folders of this node."""

    hub: Path
    cache: Path

    def place(self, file: TransferFile) -> FilePlace:
        """Return where a copy goes; raises :class:`SourceError` for a name outside its root."""
        name = PurePosixPath(file.name)
        unusual = name.is_absolute() or ".." in name.parts or not name.parts or "\0" in file.name
        if unusual or "/" in file.blob or file.blob in (".", ".."):
            raise SourceError("the name of a file leaves its folder", file.name)
        root = {FileRoot.HUB: self.hub, FileRoot.CACHE: self.cache, FileRoot.OTHER: self.cache / OTHER_FILES}[file.root]
        blob = self.hub / name.parts[0] / "blobs" / file.blob if file.blob and file.root is FileRoot.HUB else None
        return FilePlace(root / name, blob)

    def find(self, file: TransferFile, wrong: Collection[Path] = ()) -> Path | None:
        """Return where the file is: at the place of its copy, or under the head's own path; None if it is at neither.

        Size and time of change must be the same, or the name of its blob, which is a digest. ``wrong``: paths that have other bytes.
        """
        paths = (self.place(file).path, Path(file.path))
        return next((path for path in paths if path not in wrong and is_same(path, file)), None)

    def found(self, model: str, files: list[TransferFile]) -> FilesPresent | None:
        """Return where all files of a model are, or None if one of them is missing."""
        paths = {file.path: str(path) for file in files if (path := self.find(file)) is not None}
        if len(paths) < len({file.path for file in files}):
            return None
        places = {str(self.place(file).path) for file in files}
        return FilesPresent(model, paths, sorted(set(paths.values()) - places))


def is_same(path: Path, file: TransferFile) -> bool:
    """Return whether a path has the content of a file, to judge by its size, and by its time of change or its blob."""
    try:
        facts = path.stat()
        if facts.st_size != file.size:
            return False
        if file.blob:
            return Path(os.path.realpath(path)).name == file.blob
    except (OSError, ValueError):
        return False
    # Whole seconds: that is all that some file systems keep.
    return facts.st_mtime_ns // _NS == file.mtime_ns // _NS


def partial(place: FilePlace, file: TransferFile) -> Path:
    """Return where the content of a file grows: another content has another name."""
    if place.link is not None:  # the name that the hub's library uses
        return place.link.with_name(f"{file.blob}{_PARTIAL}")
    return place.path.with_name(f".{place.path.name}.{file.id}{_PARTIAL}")


def is_there(place: FilePlace, file: TransferFile) -> bool:
    """Return whether the content of a file is there, also of a blob that has no such name yet."""
    return disk.size_of(place.link) == file.size if place.link is not None else is_same(place.path, file)


def remove_others(place: FilePlace) -> None:
    """Remove parts of former contents of the same file."""
    if place.link is None:
        for left in place.path.parent.glob(f".{_escaped(place.path.name)}.*{_PARTIAL}"):
            left.unlink(missing_ok=True)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def make_link(place: FilePlace) -> None:
    """Give a blob its name in a snapshot."""
    path, link = place
    path.parent.mkdir(parents=True, exist_ok=True)
    target = os.path.relpath(str(link), path.parent)
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(path)


def existing(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    while not folder.exists():
        folder = folder.parent
    return folder
