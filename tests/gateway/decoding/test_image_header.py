"""How large a picture says it is, and in how many scans a JPEG comes."""

from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from gateway.decoding.image_header import has_more_scans, image_size
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


SCAN = b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00"
DATA = b"\x00\xff\x00\xda\xff\xd0\xff\xd7ab"
"""With a byte that has an escape, and two restarts."""


@pytest.mark.parametrize(
    ("data", "scans"),
    [
        (SCAN + DATA, 1),
        ((SCAN + DATA) * 5, 5),
        ((SCAN + DATA + COMMENT) * 5 + b"\xff", 5),
        (SCAN + DATA + b"\xff\xff" + SCAN[1:], 2),
        (SCAN + DATA + b"\xff\xfe\x00\x0c" + SCAN + SCAN + DATA, 2),
        (b"\xff\xe1\x00\x16" + SCAN * 2 + SCAN + DATA, 1),
        (SCAN + DATA + b"\xff\xd9" + SCAN * 5, 1),
        (b"\xff\xd8\xff\x01" + SCAN + SCAN[:3], 2),
        (b"", 0),
    ],
)
def test_scans_are_counted_but_not_what_looks_like_them(data: bytes, scans: int) -> None:
    """For example the preview in a file's metadata, and pictures after the end of the first one."""
    found = [has_more_scans(b"\xff\xd8" + data, most) for most in range(7)]
    assert found == [scans > most for most in range(7)]
