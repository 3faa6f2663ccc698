"""Image models for the stand-in ``sd-server``, in a cache of the hub, and readers of the pictures."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any, Final, NamedTuple

TURBO: Final = ("stabilityai/sd-turbo", "sd_turbo.safetensors")
"""Repository and file of the catalogue's SD-Turbo."""


def safetensors(size: int = 64) -> bytes:
    """Return a complete safetensors file with one tensor of this many bytes."""
    tensor = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "x": tensor}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)


def downloaded(hf_home: Path, repo: str, file: str, data: bytes) -> Path:
    """Put a file where the hub's cache would have it."""
    folder = hf_home / "hub" / f"models--{repo.replace('/', '--')}" / "snapshots" / "0123"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(data)
    return folder / file


def png(width: int, height: int, grey: int = 128) -> bytes:
    """Return a picture in one shade of grey."""
    rows = (b"\0" + bytes([grey]) * 3 * width) * height
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


class Seen(NamedTuple):
    """A PNG: its sides, its pixels and its texts."""

    width: int
    height: int
    pixels: bytes
    text: str


def seen(coded: str) -> Seen:
    """Read a PNG in base64; fails for anything else."""
    data = base64.b64decode(coded, validate=True)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, width, height, pixels, text = 8, 0, 0, b"", ""
    while at < len(data):
        (length,), kind = struct.unpack_from(">I", data, at), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + body)
        if kind == b"IHDR":
            width, height = struct.unpack_from(">II", body)
        elif kind == b"IDAT":
            pixels += body
        elif kind == b"tEXt":
            text = body.partition(b"\0")[2].decode("latin-1")
        at += 12 + length
    pixels = zlib.decompress(pixels)
    assert len(pixels) == height * (width * 3 + 1)
    return Seen(width, height, pixels, text)


def pictures(answer: Any) -> list[Seen]:
    """Return the pictures of an answer."""
    return [seen(each["b64_json"]) for each in answer["data"]]
