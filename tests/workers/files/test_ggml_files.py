"""Files of whisper models: whole, truncated, or with a header that would end the engine."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from protocol.config.settings import Settings
from protocol.models.recipes import ModelSpec
from tests.support.models.tiny_models import tiny_models
from workers.backends.whispercpp.backend import WhisperCppBackend
from workers.files import ggml
from workers.files.errors import BrokenError

MODELS = tiny_models() / "models"
HEADER = b"lmgg" + struct.pack("<13i", 100, 1500, 32, 1, 1, 448, 32, 1, 1, 1, 1, 1, 201) + bytes(4 * 201)


@pytest.mark.parametrize("name", ["tiny-whisper", "slow-whisper"])
def test_whole_files_are_whole(name: str) -> None:
    ggml.check(MODELS / f"{name}.bin")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a ggml file"),
        (b"GGUF\3\0\0\0", "a GGUF file, not"),
        (b"PK\3\4", "not a ggml file"),
        (b"lmgg", "truncated"),
        (HEADER[:40], "truncated"),
        (HEADER + struct.pack("<i", -1), "vocabulary"),
        (HEADER + struct.pack("<3i", 1, 2**30, 0), "vocabulary"),
        (HEADER + struct.pack("<4i", 0, 99, 1, 0), "tensors makes no sense"),
        (HEADER + struct.pack("<8i", 0, 4, 1, 0, *[2**24 - 1] * 4), "truncated: .* bytes are missing"),
        (HEADER + bytes(4) + (struct.pack("<4i", 1, 1, 0, 1) + b"xdata") * 51, "too many tensors"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(data)
    with pytest.raises(BrokenError, match=message):
        ggml.check(path)


@pytest.mark.parametrize(
    ("index", "value"),
    [(index, value) for index in range(13) for value in (-1, 0, 2**24) if (index, value) != (10, 0)]
    + [(3, 5), (7, 5), (2, 64), (4, 257), (8, 257), (9, 3), (11, 3), (12, 200), (12, 202)],
)
def test_headers_that_would_end_the_engine(tmp_path: Path, index: int, value: int) -> None:
    path = tmp_path / "x.bin"
    data = bytearray((MODELS / "tiny-whisper.bin").read_bytes())
    struct.pack_into("<i", data, 4 + 4 * index, value)
    path.write_bytes(data)
    with pytest.raises(BrokenError, match="its header makes no sense"):
        ggml.check(path)


def tensor_offsets(data: bytes) -> list[int]:
    """Return where the tensors of the tiny model begin."""
    position = 48 + 8 + 4 * 2 * 201
    (words,) = struct.unpack_from("<i", data, position)
    position += 4
    for _ in range(words):
        position += 4 + struct.unpack_from("<i", data, position)[0]
    found = []
    while position < len(data):
        found.append(position)
        dimensions, length, kind = struct.unpack_from("<3i", data, position)
        elements = 1
        for size in struct.unpack_from(f"<{dimensions}i", data, position + 12):
            elements *= size
        position += 12 + 4 * dimensions + length + elements * (4, 2)[kind]
    return found


def test_a_file_truncated_anywhere_is_refused(tmp_path: Path) -> None:
    data = (MODELS / "tiny-whisper.bin").read_bytes()
    path = tmp_path / "x.bin"
    offsets = tensor_offsets(data)
    path.write_bytes(data)
    for size in [len(data) - 1, *offsets[-1:0:-7], offsets[1] + 5, offsets[0] + 2, 1500, 60, 5]:
        with path.open("r+b") as file:
            file.truncate(size)
        with pytest.raises(BrokenError, match="it is truncated"):
            ggml.check(path)


def test_a_broken_file_is_found_before_an_engine_is_started(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"lmgg")
    spec = ModelSpec("x", "x", "whispercpp", "cpu", "audio", str(path))
    with pytest.raises(ValueError, match="truncated"):
        WhisperCppBackend(spec, Settings()).examine()
