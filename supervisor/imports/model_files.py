"""Model files of other programs: whether one is a model that a recipe runs, and texts beside it. Reads only."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS, invalid, printable
from supervisor.models.catalogues.extra_folders import read_head

_GGUF: Final = b"GGUF"
_VISION: Final = b".vision.block_count"
"""A key in the header of a file that has a vision tower inside, as Ollama's own engine wants it."""


def file_problem(path: Path, size: int = 0) -> str:
    """Return why a file cannot be used as a GGUF file; empty if its size and first bytes are right. ``size``: 0 if unknown."""
    try:
        facts = path.stat()
    except OSError as problem:
        return f"its file cannot be read ({problem.strerror}): {path}"
    if not stat.S_ISREG(facts.st_mode):
        return f"it is not a file: {path}"
    if size and facts.st_size != size:
        return f"its file has {facts.st_size} bytes instead of {size}, so its download is not complete: {path}"
    if not os.access(path, os.R_OK):
        return f"its file may not be read by this user: {path}"
    return "" if read_head(str(path)).startswith(_GGUF) else f"its file is not a GGUF file: {path}"


def has_vision_inside(path: Path) -> bool:
    """Return whether a GGUF file has a vision tower inside, which llama.cpp only reads from a projector of its own."""
    return _VISION in read_head(str(path))


def read_json(path: Path, kind: Any) -> Any:
    """Return a JSON file as a declared type; raises ``invalid_request`` with the file and what is wrong with it."""
    try:
        return msgspec.json.decode(small_files.read_small_file(path), type=kind)
    except OSError as problem:
        refuse(path, problem.strerror or str(problem))
    except DECODE_ERRORS as problem:
        refuse(path, printable(str(problem), 300))


def refuse(path: Path, reason: str) -> NoReturn:
    """Raise ``invalid_request`` for a file or folder."""
    raise invalid(f"{path}: {reason}", "path")
