"""The files that the code was loaded from: two states of a checkout have the same version number, but still differ."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("gateway", "protocol", "supervisor", "workers")


def digest(folder: Path) -> str:
    """Return a digest that changes with any file of the four packages in a folder: with its size or time, as Python decides to compile again."""
    return hashlib.sha256("\n".join(sorted(_files(folder))).encode(errors="surrogateescape")).hexdigest()[:12]


def _files(folder: Path) -> Iterator[str]:
    for package in _PACKAGES:
        for parent, folders, names in os.walk(folder / package):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                path = os.path.join(parent, name)  # noqa: PTH118 - half the time of pathlib
                with contextlib.suppress(FileNotFoundError):  # just replaced
                    facts = os.stat(path)  # noqa: PTH116
                    yield f"{path} {facts.st_size} {facts.st_mtime_ns}"


LOADED_FILES: Final = digest(Path(__file__).resolve().parents[2])
"""Made when this module is imported, by the fork server, whose supervisors all run these files."""
