"""Reads the header of a safetensors file, and checks that the file is complete. Only reads the file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from workers.files.errors import BrokenError

MAX_HEADER_BYTES: Final = 25_000_000
"""A quarter of the format's own limit: 100,000 tensors, which take a second to read."""


class _Tensor(msgspec.Struct):
    data_offsets: tuple[int, int]


_header = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_tensor = msgspec.json.Decoder(_Tensor).decode


_NAME: Final = re.compile(rb'"([^"\\]{1,255})" *: *\{ *"(?:dtype|shape|data_offsets)"')


def tensor_names(data: bytes) -> list[str]:
    """Return the tensor names in the first bytes of a file, up to their end; none for another kind of file."""
    if len(data) < 9 or int.from_bytes(data[:8], "little") > MAX_HEADER_BYTES or data[8:9] != b"{":
        return []
    return [name.decode("utf-8", "replace") for name in _NAME.findall(data[8:])]


def check(path: Path) -> None:
    """Raise :class:`BrokenError` for a broken or truncated file, OSError for an unreadable one."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > MAX_HEADER_BYTES:
            raise BrokenError("it is not a safetensors file")
        if length > size - 8:
            raise BrokenError("it is truncated inside its header")
        header = file.read(length)
    try:
        tensors = [_tensor(raw) for name, raw in _header(header).items() if name != "__metadata__"]
    except (ValueError, RecursionError):
        raise BrokenError("it is not a safetensors file") from None
    missing = 8 + length + max((tensor.data_offsets[1] for tensor in tensors), default=0) - size
    if missing > 0:
        raise BrokenError(f"it is truncated: {missing} bytes are missing")
