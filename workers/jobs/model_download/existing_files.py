"""Checks by their headers whether already downloaded files are complete."""

from __future__ import annotations

from pathlib import Path

from workers.files import gguf
from workers.files.errors import BrokenError


def broken_file(files: list[str]) -> str:
    """Return what is wrong with the first incomplete file, for clients; empty if all are complete."""
    for path in map(Path, files):
        try:
            if path.is_file() and not path.stat().st_size:
                return f"{path.name} is empty"
            if path.suffix.lower() == ".gguf":
                gguf.read(path)
        except BrokenError as problem:
            return f"{path.name}: {problem}"
        except (OSError, ValueError):
            return f"{path.name} cannot be read"
    return ""
