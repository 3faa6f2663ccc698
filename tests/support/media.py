"""Deceptive images for tests: small files that decode to much data, and files that name other addresses."""

from __future__ import annotations

import base64
import io
import random
import struct
import zlib
from typing import Final

from PIL import Image

from tests.support.audio import encoded

PNG_HEAD: Final = b"\x89PNG\r\n\x1a\n"


def data_url(data: bytes, kind: str = "image/png") -> str:
    """Return a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of(width: int, height: int, rows: bytes, *others: tuple[bytes, bytes]) -> bytes:
    """Return a PNG that claims a size, with these bytes of 8-bit grey and more chunks before them."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    more = b"".join(chunk(*other) for other in others)
    return PNG_HEAD + head + more + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def playlist(address: str) -> bytes:
    """Return an HLS playlist whose only segment is at an address."""
    return f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{address}/segment.ts\n#EXT-X-ENDLIST\n".encode()


def noise(width: int, height: int) -> Image.Image:
    """Return grey noise, the same in each process: Pillow's own differs, and the values of a test are in its name."""
    return Image.frombytes("L", (width, height), random.Random(7).randbytes(width * height)).convert("RGB")


def written(image: Image.Image, kind: str, **options: object) -> bytes:
    """Return an image as a file."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def matroska() -> bytes:
    """Return a small Matroska file."""
    return encoded("matroska", "flac", seconds=0.1)


def many_scans(side: int, scans: int) -> bytes:
    """Return a progressive JPEG with this many scans, which repeats the scan of the finest detail: each costs work for all pixels."""
    data = written(Image.new("L", (side, side)), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    repeated = scans - data[:last].count(b"\xff\xda")
    return data[:last] + (data[last:-2] * repeated) + b"\xff\xd9"
