"""The folders of installed backends: jobs write them, workers run them, the supervisor reports them.

``CACHE_DIR/backends/RECIPE/BACKEND/VERSION-DIGEST/`` is one installation, with a record that describes it. It gets that
name when it is complete; names that begin with a dot are drafts and leftovers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS

RECORD_FILE: Final = "lemonbus.json"
SITE_FOLDER: Final = "site"
"""The folder of an installation's Python packages."""
FILES_FOLDER: Final = "files"
"""The folder of an unpacked archive."""


class InstallationRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record in an installation's folder."""

    recipe: str
    backend: str
    version: str
    digest: str
    """Digest of the pins that it was installed from. Another digest means an update, even of the same version."""
    program: str = ""
    """Path of the executable in the folder; empty for wheels."""


class Installation(NamedTuple):
    """A complete installation on the disk."""

    folder: Path
    record: InstallationRecord

    @property
    def program(self) -> Path:
        """The executable from an archive."""
        return self.folder / FILES_FOLDER / self.record.program

    @property
    def packages(self) -> Path:
        """What is added to the module search path."""
        return self.folder / SITE_FOLDER


def backend_folder(cache_dir: str, recipe: str, backend: str) -> Path:
    """Return the folder of all versions of a backend."""
    return Path(cache_dir) / "backends" / recipe / backend


def find_installations(cache_dir: str, recipe: str, backend: str) -> list[Installation]:
    """Return the installations of a backend, the latest first."""
    found: list[tuple[float, Installation]] = []
    try:
        folders = [
            path for path in backend_folder(cache_dir, recipe, backend).iterdir() if not path.name.startswith(".")
        ]
    except OSError:
        return []
    for folder in folders:
        try:
            record = msgspec.json.decode(small_files.read_small_file(folder / RECORD_FILE), type=InstallationRecord)
            found.append(((folder / RECORD_FILE).stat().st_mtime, Installation(folder, record)))
        except (OSError, *DECODE_ERRORS):
            continue  # not one of ours, or removed meanwhile
    return [installation for _, installation in sorted(found, key=lambda each: -each[0])]
