"""Reads the description of a model of ONNX Runtime GenAI: which files it needs, and how long its context is."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import msgspec

from protocol.failures import DECODE_ERRORS
from protocol.models.repository_files import GENAI_CONFIG
from workers.files import onnx
from workers.files.errors import BrokenError

_MAX_DEPTH: Final = 8
_MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024
"""Most descriptions have two thousand bytes."""


class GenaiFolder(NamedTuple):
    """A model whose files are complete."""

    size: int
    """Bytes of all its files."""
    context: int
    """Tokens that it was made for; 0 if unspecified."""
    cache_elements: int
    """Numbers that are kept for each token; 0 if unspecified."""


def read(folder: Path) -> GenaiFolder:
    """Check a model's files; raises :class:`BrokenError`, or OSError if one cannot be read."""
    if not folder.is_dir():
        folder.stat()
        raise BrokenError(f"it is not a folder with {GENAI_CONFIG}")
    model = _model(folder)
    names = sorted(set(_files(model, 0)))
    if not names:
        raise BrokenError(f"its {GENAI_CONFIG} names no file")
    for name in names:
        if "\0" in name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BrokenError(f"its {GENAI_CONFIG} names a file outside of its folder")
        _check(folder / name, name)
    decoder = model.get("decoder")
    sizes = decoder if isinstance(decoder, dict) else {}
    kept = (_count(sizes.get(name)) for name in ("num_hidden_layers", "num_key_value_heads", "head_size"))
    return GenaiFolder(_size(folder), _count(model.get("context_length")), 2 * math.prod(kept))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31 else 0


def _model(folder: Path) -> dict[str, Any]:
    try:
        with (folder / GENAI_CONFIG).open("rb") as file:
            data = file.read(_MAX_CONFIG_BYTES + 1)
        if len(data) > _MAX_CONFIG_BYTES:
            raise BrokenError(f"its {GENAI_CONFIG} is too large")
        config = msgspec.json.decode(data, type=dict[str, Any])
    except FileNotFoundError:
        raise BrokenError(f"its {GENAI_CONFIG} is missing") from None
    except DECODE_ERRORS:
        raise BrokenError(f"its {GENAI_CONFIG} is broken") from None
    model = config.get("model")
    if not isinstance(model, dict):
        raise BrokenError(f"its {GENAI_CONFIG} describes no model")
    return model


def _files(node: Any, depth: int) -> Iterator[str]:
    """Yield every file that a description names: of decoders, pipeline stages and encoders."""
    if depth > _MAX_DEPTH:
        return
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _files(value, depth + 1)
    if isinstance(node, dict) and isinstance(node.get("filename"), str) and node["filename"]:
        yield node["filename"]


def _check(path: Path, name: str) -> None:
    try:
        if name.endswith(".onnx"):
            onnx.check(path)
        else:
            path.stat()
    except FileNotFoundError as problem:
        raise BrokenError(f"{Path(problem.filename or name).name} is missing") from None


def _size(folder: Path) -> int:
    return sum(
        _bytes(Path(directory) / name) for directory, _, names in os.walk(folder, followlinks=False) for name in names
    )


def _bytes(path: Path) -> int:
    """Return the size of a file; 0 for a broken link, which the description does not name."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
