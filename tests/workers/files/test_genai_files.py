"""What is read from a model folder of ONNX Runtime GenAI, and which files are refused."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.support.accepted_share import accepted_share
from tests.support.models import onnx_protobuf
from tests.support.models.genai_models import CONTEXT, write_genai_model
from tests.support.models.genai_writer import HEAD, KV_HEADS, LAYERS
from workers.files import genai, onnx
from workers.files.errors import BrokenError


def test_a_whole_folder(tmp_path: Path) -> None:
    folder = write_genai_model(tmp_path, "tiny-oga")
    elements = 2 * LAYERS * KV_HEADS * HEAD
    assert genai.read(folder) == (sum(path.stat().st_size for path in folder.iterdir()), CONTEXT, elements)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (b"{", "is broken"),
        (b"[]", "is broken"),
        (b'{"a":"\xff"}', "is broken"),
        (b"[" * 100_000, "is broken"),
        (b"{}", "describes no model"),
        (b'{"model":{}}', "names no file"),
        (b'{"model":{"decoder":{"filename":"other.onnx"}}}', "other.onnx is missing"),
        (b'{"model":{"decoder":{"filename":"/etc/passwd"}}}', "outside of its folder"),
        (b'{"model":{"decoder":{"pipeline":[{"a":{"filename":"../x.onnx"}}]}}}', "outside of its folder"),
        (b'{"model":{"decoder":{"filename":"empty.onnx"}}}', "empty.onnx is empty"),
        (b'{"model":{"decoder":{"filename":"text.onnx"}}}', "not an ONNX file"),
    ],
)
def test_folders_that_are_not_a_model(tmp_path: Path, config: bytes, reason: str) -> None:
    (tmp_path / "genai_config.json").write_bytes(config)
    (tmp_path / "empty.onnx").touch()
    (tmp_path / "text.onnx").write_bytes(b"hello, hello, hello")
    with pytest.raises(BrokenError, match=reason) as raised:
        genai.read(tmp_path)
    assert str(tmp_path) not in str(raised.value)


def test_what_is_not_a_model_folder(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    with pytest.raises(BrokenError, match="not a folder"):
        genai.read(tmp_path / "x.gguf")
    with pytest.raises(FileNotFoundError):
        genai.read(tmp_path / "nothing")


def test_data_beside_a_model(tmp_path: Path) -> None:
    weight = onnx_protobuf.beside("w", [4, 8], "model.onnx.data", 128)
    (tmp_path / "model.onnx").write_bytes(onnx_protobuf.model([], [weight], [], []))
    (tmp_path / "genai_config.json").write_text('{"model":{"decoder":{"filename":"model.onnx"}}}')
    with pytest.raises(BrokenError, match=r"model\.onnx\.data is missing"):
        genai.read(tmp_path)
    (tmp_path / "model.onnx.data").write_bytes(b"0" * 100)
    with pytest.raises(BrokenError, match=r"model\.onnx\.data is truncated: 28 bytes"):
        genai.read(tmp_path)
    (tmp_path / "model.onnx.data").write_bytes(b"0" * 128)
    assert genai.read(tmp_path).context == 0
    outside = onnx_protobuf.beside("w", [4, 8], "../secret", 128)
    (tmp_path / "model.onnx").write_bytes(onnx_protobuf.model([], [outside], [], []))
    with pytest.raises(BrokenError, match="outside of its folder"):
        genai.read(tmp_path)


def test_a_description_that_describes_no_model(tmp_path: Path) -> None:
    with (tmp_path / "genai_config.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(BrokenError, match="too large"):
        genai.read(tmp_path)


def test_an_unused_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "genai_config.json").write_text('{"model":{"decoder":{"filename":"a.bin"}}}')
    (tmp_path / "a.bin").write_bytes(b"four")
    (tmp_path / "old").symlink_to(tmp_path / "gone")
    assert genai.read(tmp_path).size == 4 + (tmp_path / "genai_config.json").stat().st_size


def test_a_file_of_very_many_very_small_fields_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(
        onnx_protobuf.model([], [onnx_protobuf.beside(f"w{n}", [2], "x.onnx", 8) for n in range(9)], [], [])
    )
    onnx.check(path)
    monkeypatch.setattr(onnx, "_MOST_FIELDS", 50)
    with pytest.raises(BrokenError, match="not an ONNX file"):
        onnx.check(path)


def test_a_model_that_was_cut_off_anywhere_is_incomplete(tmp_path: Path) -> None:
    whole = (write_genai_model(tmp_path, "tiny-oga") / "model.onnx").read_bytes()
    cut = tmp_path / "cut.onnx"
    for size in (1, 10, 50, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        with pytest.raises(BrokenError):
            onnx.check(cut)


@accepted_share(0.05, noise=st.binary(max_size=3), offset=st.integers(0, 3000))
def test_any_file_is_read_or_refused(noise: bytes, offset: int) -> bool:
    data = bytearray(onnx_protobuf.model([], [onnx_protobuf.beside(f"w{n}", [2], "d", 8) for n in range(60)], [], []))
    data[offset : offset + len(noise)] = noise
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.onnx"
        path.write_bytes(data)
        (path.parent / "d").write_bytes(bytes(1024))
        try:
            onnx.check(path)
        except (BrokenError, OSError):
            return False
    return True
