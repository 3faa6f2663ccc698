"""How large a picture says it is."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from gateway.decoding.image_header import image_size
from tests.support.images import png

FRAME = b"\xff\xc2\x00\x11\x08\x00\x30\x01\x00\x03"
"""Height 48, width 256."""
COMMENT = b"\xff\xfe\x00\x06\xff\xc0ab"


def webp(**how: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (72, 48), (1, 2, 3)).save(file, "webp", **how)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (png(72, 48), (72, 48)),
        (png(72, 48)[:20], None),
        (b"\xff\xd8" + COMMENT + FRAME, (256, 48)),
        (b"\xff\xd8\xff" + COMMENT + b"\xff\x01\xff\xff" + FRAME[1:], (256, 48)),
        (b"\xff\xd8" + COMMENT + FRAME[:6], None),
        (b"\xff\xd8" + COMMENT, None),
        (b"\xff\xd8" + COMMENT + b"x" + FRAME, None),
        (b"\xff\xd8" + b"\xff\xfe\x00\x00" * 9, None),
        (webp(lossless=True), (72, 48)),
        (webp(lossless=False), (72, 48)),
        (webp(lossless=False, exif=b"Exif"), (72, 48)),
        (webp(lossless=True)[:20], None),
        (webp(lossless=False)[:26], None),
        (b"RIFF\0\0\0\0WEBPxxxx" + bytes(40), None),
        (b"GIF89a", None),
        (b"", None),
    ],
)
def test_sides(data: bytes, found: tuple[int, int] | None) -> None:
    assert image_size(data) == found
