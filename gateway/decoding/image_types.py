"""Which bytes are an image: told by how they begin, whatever a server calls them. Pure."""

from __future__ import annotations

from typing import Final

_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)
SIGNATURE_BYTES: Final = 12
"""Bytes that are enough to tell."""
NAMES: Final = "PNG, JPEG, GIF, WebP or BMP"


def image_type(data: bytes | bytearray) -> str:
    """Return the media type of an image, empty if the bytes are no image that an engine may read."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES if data.startswith(signature)), "")
