"""The key of a kept prompt cache: two engines with the same key may read each other's files. Pure, except for reading facts of files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from protocol.models.prompt_caches import KEY_LENGTH

FORMAT: Final = 1
"""Changes when files of older versions must no longer be used."""


class FileIdentity(msgspec.Struct, frozen=True):
    """Identifies a file and its version. ``modified``: nanoseconds; sizes in bytes."""

    path: str
    size: int
    modified: int


class CacheFacts(msgspec.Struct, frozen=True):
    """Everything that the content of a prompt cache depends on, except the prompts."""

    files: list[FileIdentity]
    """The model's files, and others that the engine computes with: a projector, adapters."""
    engine: str
    """The backend, and the build of the engine."""
    context: int
    """Context tokens of a slot."""
    slots: int
    gpu_layers: int = 0
    arguments: list[str] = []
    """The engine's arguments that may change its results, in their order."""


def cache_key(facts: CacheFacts) -> str:
    """Return the key: hexadecimal digits."""
    return hashlib.sha256(msgspec.json.encode((FORMAT, facts))).hexdigest()[:KEY_LENGTH]


def identify_files(paths: Sequence[str]) -> list[FileIdentity]:
    """Return the present state of the files; raises OSError for a missing one."""
    found = []
    for path in paths:
        facts = os.stat(path)  # noqa: PTH116 - a path of the engine's arguments stays as it was written
        found.append(FileIdentity(path, facts.st_size, facts.st_mtime_ns))
    return found
