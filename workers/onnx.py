"""Reads as much of an ONNX file as it takes to know that it is whole, and that the data beside it are. Pure but for the files.

An ONNX file is a protobuf message; of its graph's weights only those are looked at that lie in other files.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_GRAPH: Final = 7
"""Of a model."""
_INITIALIZER: Final = 5
"""Of a graph."""
_EXTERNAL_DATA: Final = 13
"""Of a tensor: entries of a key (1) and a value (2)."""


class BrokenError(ValueError):
    """The file is no ONNX file, or not a whole one. The text is for the caller and has no path."""


class _Field(NamedTuple):
    number: int
    start: int
    end: int
    """Of its bytes; both 0 for a number."""


def check(path: Path) -> None:
    """Look whether a model is whole; raises :class:`BrokenError`, or OSError if a file cannot be read."""
    if not path.stat().st_size:
        raise BrokenError(f"{path.name} is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        needed: dict[str, int] = {}
        graphs = 0
        try:
            for field in _fields(data, 0, len(data)):
                if field.number == _GRAPH and field.end:
                    graphs += 1
                    _beside(data, field, needed)
        except (IndexError, UnicodeDecodeError, ValueError):
            raise BrokenError(f"{path.name} is truncated, or no ONNX file") from None
        if not graphs:
            raise BrokenError(f"{path.name} is no ONNX file")
    for name, size in needed.items():
        if "\0" in name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BrokenError(f"{path.name} wants data from outside of its folder")
        missing = size - (path.parent / name).stat().st_size
        if missing > 0:
            raise BrokenError(f"{name} is truncated: {missing} bytes are missing")


def _beside(data: mmap.mmap, graph: _Field, needed: dict[str, int]) -> None:
    """Note how long the files must be that the graph's weights lie in."""
    for tensor in _fields(data, graph.start, graph.end):
        if tensor.number != _INITIALIZER:
            continue
        said = dict(
            _entry(data, each) for each in _fields(data, tensor.start, tensor.end) if each.number == _EXTERNAL_DATA
        )
        if "location" in said:
            end = int(said.get("offset", "0")) + int(said.get("length", "0"))
            needed[said["location"]] = max(end, needed.get(said["location"], 0))


def _entry(data: mmap.mmap, field: _Field) -> tuple[str, str]:
    found = {each.number: data[each.start : each.end].decode() for each in _fields(data, field.start, field.end)}
    return found.get(1, ""), found.get(2, "")


def _fields(data: mmap.mmap, at: int, end: int) -> Iterator[_Field]:
    """Yield the fields of a message; raises ValueError or IndexError where it is none."""
    while at < end:
        key, at = _varint(data, at)
        kind, start = key & 7, 0
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind == _LENGTH:
            size, start = _varint(data, at)
            at = start + size
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(kind)
        if at > end or not key >> 3:
            raise ValueError(at)
        yield _Field(key >> 3, start, at if start else 0)


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError(at)
