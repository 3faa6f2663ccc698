"""Reads as much of an ONNX file as it takes to know that it is whole, and that the data beside it are. Pure but for the files.

An ONNX file is a protobuf message; of its graph's weights only those are looked at that lie in other files.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from workers.files.errors import BrokenError

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_FIELDS: Final = 400_000
"""Fields looked at: a large model has some ten thousand; a file with more is not believed."""
_GRAPH: Final = 7
"""Of a model."""
_INITIALIZER: Final = 5
"""Of a graph."""
_EXTERNAL_DATA: Final = 13
"""Of a tensor: entries of a key (1) and a value (2)."""


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
        reader = _OnnxReader(data)
        try:
            graphs = reader.graphs()
        except (IndexError, UnicodeDecodeError, ValueError):
            raise BrokenError(f"{path.name} is truncated, or no ONNX file") from None
        if not graphs:
            raise BrokenError(f"{path.name} is no ONNX file")
    for name, size in reader.needed.items():
        if "\0" in name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BrokenError(f"{path.name} wants data from outside of its folder")
        missing = size - (path.parent / name).stat().st_size
        if missing > 0:
            raise BrokenError(f"{name} is truncated: {missing} bytes are missing")


class _OnnxReader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._left = _MOST_FIELDS
        self.needed: dict[str, int] = {}
        """How long the files must be that the weights lie in."""

    def graphs(self) -> int:
        """Return how many graphs there are, and note what they need; raises ValueError or IndexError where it is none."""
        found = 0
        for field in self._fields(0, len(self._data)):
            if field.number == _GRAPH and field.end:
                found += 1
                self._beside(field)
        return found

    def _beside(self, graph: _Field) -> None:
        for tensor in self._fields(graph.start, graph.end):
            if tensor.number != _INITIALIZER:
                continue
            fields = self._fields(tensor.start, tensor.end)
            said = dict(self._entry(each) for each in fields if each.number == _EXTERNAL_DATA)
            if "location" in said:
                end = int(said.get("offset", "0")) + int(said.get("length", "0"))
                self.needed[said["location"]] = max(end, self.needed.get(said["location"], 0))

    def _entry(self, field: _Field) -> tuple[str, str]:
        found = {
            each.number: self._data[each.start : each.end].decode() for each in self._fields(field.start, field.end)
        }
        return found.get(1, ""), found.get(2, "")

    def _fields(self, at: int, end: int) -> Iterator[_Field]:
        """Yield the fields of a message; raises ValueError or IndexError where it is none."""
        while at < end:
            self._left -= 1
            key, at = _varint(self._data, at)
            kind, start = key & 7, 0
            if kind == _VARINT:
                _, at = _varint(self._data, at)
            elif kind == _LENGTH:
                size, start = _varint(self._data, at)
                at = start + size
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                raise ValueError(kind)
            if at > end or not key >> 3 or self._left < 0:
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
