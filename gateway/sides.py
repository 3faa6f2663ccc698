"""How large a PNG or a JPEG is, by its header. Pure."""

from __future__ import annotations

import struct
from typing import Final

PNG: Final = b"\x89PNG\r\n\x1a\n"
JPEG: Final = b"\xff\xd8\xff"
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG that tell its size."""
_ALONE: Final = frozenset({0x01, *range(0xD0, 0xDA)})
"""Markers that nothing belongs to."""


def sides(data: bytes) -> tuple[int, int] | None:
    """Return width and height, None for what is neither or does not say."""
    try:
        if data.startswith(PNG) and data[12:16] == b"IHDR":
            width, height = struct.unpack_from(">II", data, 16)
            return width, height
        return _of_jpeg(data) if data.startswith(JPEG) else None
    except (struct.error, IndexError):
        return None


def _of_jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        if marker == 0xFF:
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None
