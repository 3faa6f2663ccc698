"""GGUF files: whole, truncated, or of another format."""

from __future__ import annotations

from pathlib import Path

import pytest
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=60, deadline=None)
@given(noise=st.binary(max_size=200), offset=st.integers(0, 400))
def test_a_damaged_file_is_refused(tmp_path_factory: pytest.TempPathFactory, noise: bytes, offset: int) -> None:
    path = tmp_path_factory.mktemp("broken") / "x.gguf"
    data = bytearray((tiny_models() / "models" / "tiny-chat.gguf").read_bytes()[:4096])
    data[4 + offset : 4 + offset + len(noise)] = noise
    path.write_bytes(data)
    with pytest.raises(BrokenError):
        gguf.read(path)


def test_parts() -> None:
    assert gguf.parts_of(Path("/m/x.gguf")) == [Path("/m/x.gguf")]
    assert [path.name for path in gguf.parts_of(Path("/m/x-00001-of-00002.gguf"))] == [
        "x-00001-of-00002.gguf",
        "x-00002-of-00002.gguf",
    ]
