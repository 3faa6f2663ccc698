"""The files of one checkpoint that are on this machine: read from the disk at every call, complete or not.

The hub's cache is read in its documented layout (``models--OWNER--REPO/snapshots/REVISION/…``). Its library is not
imported, because it would cost memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from protocol import small_files
from protocol.models import checkpoints, repository_files
from protocol.models.checkpoints import PackagesCheckpoint, TagCheckpoint, WheelCheckpoint


def checkpoint_files(checkpoint: str, mmproj: str, cache_dir: str) -> set[Path]:
    """Return every file of a checkpoint, in all snapshots. ``mmproj``: the projector's pattern; empty: none."""
    parsed = checkpoints.parse(checkpoint)
    if isinstance(parsed, TagCheckpoint):
        return _existing(parsed.mark(cache_dir))
    if isinstance(parsed, PackagesCheckpoint):
        return files_of_packages(parsed.file(cache_dir))
    if isinstance(parsed, WheelCheckpoint):
        return _existing(parsed.file(cache_dir))
    found: set[Path] = set()
    for snapshot in snapshots(checkpoints.hub_cache() / parsed.folder):
        names = list(walk(snapshot))
        chosen = [*repository_files.choose_files(names, parsed.variant), repository_files.projector(names, mmproj)]
        found |= {snapshot / name for name in chosen if name}
    return found


def files_of_packages(file: Path) -> set[Path]:
    """Return all files of the folder of a model that is made of packages, by its main file."""
    return {file.parent / name for name in walk(file.parent) if not name.startswith(".")}


def _existing(path: Path) -> set[Path]:
    # Path's own method raises for invalid names and without permission.
    return {path} if os.path.exists(path) else set()  # noqa: PTH110


def snapshots(repo: Path) -> Iterator[Path]:
    """Yield the snapshots of a cached repository, beginning with the one that ``main`` points to."""
    try:
        main = small_files.read_small_file(repo / "refs" / "main").decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        main = ""
    try:
        revisions = list((repo / "snapshots").iterdir())
    except OSError:
        return
    yield from sorted(revisions, key=lambda folder: (folder.name != main, folder))


def walk(folder: Path, prefix: str = "") -> Iterator[str]:
    """Yield the names of all files below a folder, with ``prefix`` before them."""
    try:
        with os.scandir(folder) as found:
            for item in found:
                if item.is_dir(follow_symlinks=False):
                    yield from walk(Path(item.path), f"{prefix}{item.name}/")
                else:
                    yield prefix + item.name
    except OSError:
        return
