"""GGUF files: whole, truncated, or of another format."""

from __future__ import annotations

import struct
import tempfile
from functools import partial
from pathlib import Path

import pytest
from gguf import GGUFReader
from hypothesis import strategies as st

from tests.support.accepted_share import accepted_share
from tests.support.models.tiny_models import tiny_models
from workers.files import gguf
from workers.files.errors import BrokenError


@pytest.mark.parametrize("name", ["tiny-chat", "tiny-embed", "tiny-rerank"])
def test_whole_files_are_whole(name: str, tmp_path: Path) -> None:
    path = tiny_models() / "models" / f"{name}.gguf"
    header = gguf.read(path)
    assert header.architecture
    assert header.context_length > 0
    assert header.parameters == sum(int(tensor.n_elements) for tensor in GGUFReader(path).tensors)
    data = path.read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in (3, 20, 100, len(data) // 3, len(data) - 64):
        cut.write_bytes(data[:size])
        with pytest.raises(BrokenError):
            gguf.read(cut)


@pytest.mark.parametrize(
    ("offset", "noise", "message"),
    [
        (4, b"\4", "its GGUF version 4 is not supported"),
        (8, b"\xff" * 8, "its header makes no sense"),
        (16, b"\xff" * 8, "its header makes no sense"),
        (16, bytes(8), "its header makes no sense"),
        (8, struct.pack("<Q", gguf.MAX_KEPT + 1), "its header makes no sense"),
        (16, struct.pack("<Q", gguf.MAX_KEPT + 1), "its header makes no sense"),
        (24, b"\xff" * 8, "it is truncated inside its header"),
        (52, b"\x63", "its header has a value of the unknown type 99"),
    ],
)
def test_a_damaged_header_is_refused(tmp_path: Path, offset: int, noise: bytes, message: str) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(damaged(offset, noise))
    with pytest.raises(BrokenError, match=message):
        gguf.read(path)


@pytest.mark.parametrize(("dimensions", "sides", "is_broken"), [(8, 2**64 - 1, True), (1, 1, False)])
def test_numbers_that_no_model_has_are_refused_or_unknown(
    tmp_path: Path, dimensions: int, sides: int, is_broken: bool
) -> None:
    key, name = b"x.context_length", b"t"
    head = b"GGUF" + struct.pack(f"<IQQQ{len(key)}sIQ", 3, 1, 1, len(key), key, 10, 2**64 - 1)
    tensor = struct.pack(f"<Q{len(name)}sI{dimensions}QIQ", len(name), name, dimensions, *[sides] * dimensions, 999, 0)
    path = tmp_path / "x.gguf"
    path.write_bytes(head + tensor + bytes(64))
    if is_broken:
        with pytest.raises(BrokenError, match="its header makes no sense"):
            gguf.read(path)
    else:
        assert gguf.read(path).context_length == 0


def test_short_lists_of_numbers_are_read_and_count(tmp_path: Path) -> None:
    key = b"x.list"
    one = struct.pack(f"<Q{len(key)}sIIQ3I", len(key), key, 9, 4, 3, 1, 2, 3)
    path = tmp_path / "x.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + one + bytes(64))
    assert gguf.read(path).keys == {"x.list": (1, 2, 3)}
    long = struct.pack(f"<Q{len(key)}sIIQ", len(key), key, 9, 0, 4096) + bytes(4096)
    many = gguf.MAX_ITEMS // 4096 + 1
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, many) + long * many)
    with pytest.raises(BrokenError, match="its header makes no sense"):
        gguf.read(path)


COUNTS = st.builds(partial(struct.pack, "<IQQ9s"), st.just(3), st.integers(0, 1), st.integers(0, 1), st.binary())


@accepted_share(0.03, examples=200, noise=COUNTS | st.binary(max_size=200), offset=st.just(4) | st.integers(4, 400))
def test_any_header_is_read_or_refused(noise: bytes, offset: int) -> bool:
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        file.write(damaged(offset, noise))
        file.flush()
        try:
            return gguf.read(Path(file.name)).parameters >= 0
        except BrokenError:
            return False


def damaged(offset: int, noise: bytes) -> bytes:
    """The beginning of a model's file, with other bytes in it."""
    data = bytearray((tiny_models() / "models" / "tiny-chat.gguf").read_bytes()[:4096])
    data[offset : offset + len(noise)] = noise
    return bytes(data)


def test_parts() -> None:
    assert gguf.parts_of(Path("/m/x.gguf")) == [Path("/m/x.gguf")]
    assert [path.name for path in gguf.parts_of(Path("/m/x-00001-of-00002.gguf"))] == [
        "x-00001-of-00002.gguf",
        "x-00002-of-00002.gguf",
    ]
