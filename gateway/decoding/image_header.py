"""The type of an image, told by its first bytes, whatever its sender says, the size of a PNG, a JPEG or a WebP, and a JPEG's scans.

Pure.
"""

from __future__ import annotations

import re
import struct
from typing import Final

PNG: Final = b"\x89PNG\r\n\x1a\n"
JPEG: Final = b"\xff\xd8\xff"
_SIGNATURES: Final = (
    (PNG, "image/png"),
    (JPEG, "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)
SIGNATURE_BYTES: Final = 12
"""How many bytes are enough to tell."""
NAMES: Final = "PNG, JPEG, GIF, WebP or BMP"
_FRAME_MARKERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG that are followed by its size."""
_STANDALONE_MARKERS: Final = frozenset({0x01, *range(0xD0, 0xDA)})
"""Markers without data after them."""

_SCAN: Final = 0xDA
_END: Final = 0xD9
_next_marker: Final = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])").search
"""Finds the next marker, past the data of a scan: these may have restarts in them."""


def image_type(data: bytes | bytearray) -> str:
    """Return the media type of an image, empty if the bytes are not an image that an engine may read."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), "")


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height; None for other formats, or for a file without its size."""
    try:
        if data.startswith(PNG) and data[12:16] == b"IHDR":
            width, height = struct.unpack_from(">II", data, 16)
            return width, height
        if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            return _webp_size(data)
        return _jpeg_size(data) if data.startswith(JPEG) else None
    except (struct.error, IndexError):
        return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        if marker == 0xFF:
            at += 1
        elif marker in _STANDALONE_MARKERS:
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def has_more_scans(data: bytes, most: int) -> bool:
    """Return whether a JPEG has more than ``most`` scans, each of which is work for all of its pixels."""
    if data.count(bytes((0xFF, _SCAN))) <= most:
        return False
    at = scans = 0
    while scans <= most and (found := _next_marker(data, at)) is not None:
        at, marker = found.end(), found[1][0]
        if marker == _END:
            break
        if marker not in _STANDALONE_MARKERS:
            at += int.from_bytes(data[at : at + 2])
        scans += marker == _SCAN
    return scans > most


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """Return the size in the first chunk, which is one of three kinds; raises struct.error if the chunk is cut."""
    kind = data[12:16]
    if kind == b"VP8X":
        width, width_high, height, height_high = struct.unpack_from("<HBHB", data, 24)
        return 1 + width + (width_high << 16), 1 + height + (height_high << 16)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", data, 26)
    return (width & 0x3FFF, height & 0x3FFF) if kind == b"VP8 " else None
