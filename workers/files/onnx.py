"""Checks that an ONNX file and the data files that it names are complete. Only reads the files.

An ONNX file is a protobuf message. Of its graph's weights, only those in other files are checked.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from workers.files.errors import BrokenError

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_FIELDS: Final = 400_000
"""Limit on fields: a large model has about ten thousand; a file with more than this is broken."""
_GRAPH: Final = 7
"""Field of a model."""
_INITIALIZER: Final = 5
"""Field of a graph."""
_EXTERNAL_DATA: Final = 13
"""Field of a tensor: an entry with a key (1) and a value (2)."""


class _Field(NamedTuple):
    number: int
    start: int
    end: int
    """Start and end of its bytes; both 0 for a number."""


def check(path: Path) -> None:
    """Check that a model is complete; raises :class:`BrokenError`, or OSError for an unreadable file."""
    if not path.stat().st_size:
        raise BrokenError(f"{path.name} is empty")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        reader = _OnnxReader(data)
        try:
            graphs = reader.graphs()
        except (IndexError, UnicodeDecodeError, ValueError):
            raise BrokenError(f"{path.name} is truncated, or not an ONNX file") from None
        if not graphs:
            raise BrokenError(f"{path.name} is not an ONNX file")
    for name, size in reader.needed.items():
        if "\0" in name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BrokenError(f"{path.name} names data outside of its folder")
        missing = size - (path.parent / name).stat().st_size
        if missing > 0:
            raise BrokenError(f"{name} is truncated: {missing} bytes are missing")


class _OnnxReader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._fields_left = _MOST_FIELDS
        self.needed: dict[str, int] = {}
        """Data file → the bytes that it must have."""

    def graphs(self) -> int:
        """Return how many graphs there are, and note the data files; raises ValueError or IndexError for another format."""
        found = 0
        for field in self._fields(0, len(self._data)):
            if field.number == _GRAPH and field.end:
                found += 1
                self._note_data_files(field)
        return found

    def _note_data_files(self, graph: _Field) -> None:
        for tensor in self._fields(graph.start, graph.end):
            if tensor.number != _INITIALIZER:
                continue
            fields = self._fields(tensor.start, tensor.end)
            entries = dict(self._entry(each) for each in fields if each.number == _EXTERNAL_DATA)
            if "location" in entries:
                end = int(entries.get("offset", "0")) + int(entries.get("length", "0"))
                self.needed[entries["location"]] = max(end, self.needed.get(entries["location"], 0))

    def _entry(self, field: _Field) -> tuple[str, str]:
        found = {
            each.number: self._data[each.start : each.end].decode() for each in self._fields(field.start, field.end)
        }
        return found.get(1, ""), found.get(2, "")

    def _fields(self, at: int, end: int) -> Iterator[_Field]:
        """Yield the fields of a message; raises ValueError or IndexError for another format."""
        while at < end:
            self._fields_left -= 1
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
            if at > end or not key >> 3 or self._fields_left < 0:
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
