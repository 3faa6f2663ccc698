"""Which files of the head another node needs for a model, and where they go there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from protocol.messages.model_transfer import FileRoot, TransferFile
from protocol.models.recipes import ModelSpec
from supervisor.node_files.spec_files import HeadFolders, files_of_spec, transfer_files

KEY = "k" * 64


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeadFolders:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return HeadFolders(tmp_path / "hub", tmp_path / "cache")


def written(path: Path, size: int = 3) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    return path


def spec_of(path: Path | str, checkpoint: str = "", **more: object) -> ModelSpec:
    return replace(ModelSpec("m", checkpoint or "m", "llamacpp", "cpu", "llm", str(path)), **more)


def in_snapshot(folders: HeadFolders, *names: str) -> Path:
    """Make files of a repository, as links to blobs; return the snapshot."""
    repository = folders.hub / "models--o--m"
    for name in names:
        blob = written(repository / "blobs" / f"blob-of-{name.replace('/', '-')}")
        link = repository / "snapshots" / "abc" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return repository / "snapshots" / "abc"


def names(spec: ModelSpec, folders: HeadFolders) -> list[tuple[FileRoot, str, str]]:
    return [(file.root, file.name, file.blob) for file in transfer_files(spec, folders, KEY)]


def test_the_parts_of_a_model(folders: HeadFolders) -> None:
    parts = {"vae": str(written(folders.hub.parent / "m" / "v.gguf")), "clip_l": "/missing"}
    spec = spec_of(written(folders.hub.parent / "m" / "m.gguf"), parts=parts)
    assert [path.name for path in files_of_spec(spec)] == ["m.gguf", "v.gguf", "missing"]
    with pytest.raises(FileNotFoundError):
        transfer_files(spec, folders, KEY)
    there = replace(spec, parts={"vae": parts["vae"]})
    assert [(root, name.rpartition("/")[2]) for root, name, _ in names(there, folders)] == [
        (FileRoot.OTHER, "m.gguf"),
        (FileRoot.OTHER, "v.gguf"),
    ]


def test_the_shards_and_the_projector_of_a_hub_model(folders: HeadFolders) -> None:
    snapshot = in_snapshot(folders, "Q4/m-00001-of-00002.gguf", "Q4/m-00002-of-00002.gguf", "mmproj.gguf", "other.gguf")
    spec = spec_of(snapshot / "Q4/m-00001-of-00002.gguf", "o/m:Q4", mmproj=str(snapshot / "mmproj.gguf"))
    at = "models--o--m/snapshots/abc"
    assert names(spec, folders) == [
        (FileRoot.HUB, f"{at}/Q4/m-00001-of-00002.gguf", "blob-of-Q4-m-00001-of-00002.gguf"),
        (FileRoot.HUB, f"{at}/Q4/m-00002-of-00002.gguf", "blob-of-Q4-m-00002-of-00002.gguf"),
        (FileRoot.HUB, f"{at}/mmproj.gguf", "blob-of-mmproj.gguf"),
    ]


def test_a_model_of_speech_has_its_voices(folders: HeadFolders) -> None:
    snapshot = in_snapshot(folders, "onnx/model.onnx", "voices/a.bin", "voices/b.bin", "README.md")
    found = files_of_spec(spec_of(snapshot / "onnx/model.onnx", "o/m:model"))
    assert [str(path.relative_to(snapshot)) for path in found] == ["onnx/model.onnx", "voices/a.bin", "voices/b.bin"]


def test_all_of_a_repository_is_not_one_model(folders: HeadFolders) -> None:
    snapshot = in_snapshot(folders, "m-Q4_K_M.gguf", "n-Q8_0.gguf")
    spec = spec_of(snapshot / "m-Q4_K_M.gguf", "o/m:*")
    assert files_of_spec(spec) == [snapshot / "m-Q4_K_M.gguf"]


def test_a_folder_of_onnx_and_a_folder_of_packages_are_whole(folders: HeadFolders) -> None:
    snapshot = in_snapshot(folders, "genai_config.json", "sub/model.onnx.data", "model.onnx")
    found = names(spec_of(snapshot, "o/m"), folders)
    assert sorted(name for _, name, _ in found) == [
        f"models--o--m/snapshots/abc/{name}" for name in ("genai_config.json", "model.onnx", "sub/model.onnx.data")
    ]
    folder = folders.cache / "models" / "kokoro"
    for name in ("model.onnx", "voices/a.bin", ".lock"):
        written(folder / name)
    spec = spec_of(folder / "model.onnx", "packages:kokoro#model.onnx")
    assert names(spec, folders) == [
        (FileRoot.CACHE, "models/kokoro/model.onnx", ""),
        (FileRoot.CACHE, "models/kokoro/voices/a.bin", ""),
    ]


def test_files_of_other_folders_keep_their_places_beside_each_other(folders: HeadFolders, tmp_path: Path) -> None:
    first, second = written(tmp_path / "x/m-00001-of-00002.gguf"), written(tmp_path / "x/m-00002-of-00002.gguf")
    beside, away = written(tmp_path / "x/lora/a.gguf"), written(tmp_path / "y/m-00001-of-00002.gguf")
    text = f"--lora {beside} --lora-scaled {away}:0.5 --slot-save-path {tmp_path} --chat-template-file /no/such"
    spec = spec_of(first, options={"llamacpp_args": text})
    found = transfer_files(spec, folders, KEY)
    assert [file.path for file in found] == [str(path) for path in (first, second, beside, away)]
    assert {file.root for file in found} == {FileRoot.OTHER}
    (first_base, *name), *others = [file.name.split("/") for file in found]
    assert (name, *others[:2]) == (
        ["m-00001-of-00002.gguf"],
        [first_base, "m-00002-of-00002.gguf"],
        [first_base, "lora", "a.gguf"],
    )
    assert others[2][0] != first_base


@pytest.mark.parametrize("path", ["", "llama3.2:1b"])
def test_a_model_without_files_on_the_head(folders: HeadFolders, path: str) -> None:
    assert transfer_files(spec_of(path), folders, KEY) == []


def test_a_missing_file_is_an_error(folders: HeadFolders, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        transfer_files(spec_of(tmp_path / "m.gguf"), folders, KEY)
    shard = written(tmp_path / "m-00001-of-00002.gguf")
    with pytest.raises(FileNotFoundError, match="m-00002-of-00002"):
        transfer_files(spec_of(shard), folders, KEY)


def only(spec: ModelSpec, folders: HeadFolders, key: str = KEY) -> TransferFile:
    (file,) = transfer_files(spec, folders, key)
    return file


CHANGES: list[Callable[[Path], object]] = [lambda path: written(path, 4), lambda path: os.utime(path, ns=(0, 1))]


@pytest.mark.parametrize("change", CHANGES)
def test_an_id_belongs_to_a_content_and_cannot_be_guessed(
    folders: HeadFolders, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    spec = spec_of(written(tmp_path / "m.gguf"))
    first = only(spec, folders)
    assert (first.size, first.mtime_ns) == (3, Path(spec.path).stat().st_mtime_ns)
    assert only(spec, folders) == first
    assert only(spec, folders, "other").id != first.id
    change(Path(spec.path))
    assert only(spec, folders).id != first.id


def test_a_link_that_leaves_its_repository_is_not_a_blob(folders: HeadFolders, tmp_path: Path) -> None:
    snapshot = in_snapshot(folders, "m.gguf")
    link = snapshot / "x.gguf"
    link.symlink_to(written(tmp_path / "elsewhere" / "blobs" / "x"))
    assert only(spec_of(link), folders).blob == ""
    assert only(spec_of(written(snapshot / "plain.gguf")), folders).blob == ""
