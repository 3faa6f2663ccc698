"""Reads as much of a safetensors file as it takes to know that it is whole: its header. Pure but for the file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

LARGEST_HEADER: Final = 100_000_000
"""The format's own bound."""


class BrokenError(ValueError):
    """The file is no safetensors file, or not a whole one. The text is for the caller and has no path."""


class _Tensor(msgspec.Struct):
    data_offsets: tuple[int, int]


_header = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_tensor = msgspec.json.Decoder(_Tensor).decode


def check(path: Path) -> None:
    """Raise :class:`BrokenError` for a file that is broken or cut off, OSError if it cannot be read."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > LARGEST_HEADER:
            raise BrokenError("it is not a safetensors file")
        if length > size - 8:
            raise BrokenError("it is truncated inside its header")
        header = file.read(length)
    try:
        tensors = [_tensor(raw) for name, raw in _header(header).items() if name != "__metadata__"]
    except (msgspec.MsgspecError, RecursionError):
        raise BrokenError("it is not a safetensors file") from None
    missing = 8 + length + max((tensor.data_offsets[1] for tensor in tensors), default=0) - size
    if missing > 0:
        raise BrokenError(f"it is truncated: {missing} bytes are missing")
