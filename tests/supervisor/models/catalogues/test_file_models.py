"""The models that sections with ``path`` make: what their files are, and when this is looked at again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from protocol.config.model_settings import ModelSettings
from protocol.failures import LemonbusError
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.catalogues.file_models import FileModels
from tests.supervisor.models.model_files import MakeModels
from tests.support.models.tiny_models import tiny_models

DIGEST = "sha256-" + "a" * 64


def entry_of(path: Path, **more: str) -> CatalogueEntry:
    return FileModels({"x": ModelSettings(path=str(path), **more)}).entries["x"]


@pytest.mark.parametrize(
    ("file", "name", "recipe", "labels"),
    [
        ("tiny-chat.gguf", DIGEST, "llamacpp", []),
        ("tiny-embed.gguf", DIGEST, "llamacpp", ["embeddings"]),
        ("tiny-rerank.gguf", "r.gguf", "llamacpp", ["reranking"]),
        ("tiny-whisper.bin", "w.bin", "whispercpp", ["transcription"]),
        ("tiny-vision/mmproj-tiny.gguf", DIGEST, "llamacpp", []),
    ],
)
def test_the_first_bytes_tell_what_a_file_is(
    file: str, name: str, recipe: str, labels: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).symlink_to(tiny_models() / "models" / file)
    found = entry_of(tmp_path / name)
    assert (found.recipe, found.labels, found.configured) == (recipe, labels, True)
    assert (found.path, found.checkpoint) == (str(tmp_path / name), name)


def test_a_projector_makes_a_vision_model(tmp_path: Path) -> None:
    assert entry_of(tmp_path / "a", mmproj="/m.gguf").labels == ["vision"]


def test_a_file_is_looked_at_again_when_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / DIGEST
    models = FileModels({"x": ModelSettings(path=str(file)), "y": ModelSettings(ttl=3)})
    assert list(models.entries) == ["x"]
    assert models.entries["x"].labels == []
    assert not models.refresh()
    shutil.copyfile(tiny_models() / "models" / "tiny-embed.gguf", file)
    assert not models.refresh("y")
    assert models.refresh("x")
    assert models.entries["x"].labels == ["embeddings"]
    assert not models.refresh()


def test_the_registry_finds_the_model_by_its_names_once_its_file_is_there(make: MakeModels, tmp_path: Path) -> None:
    file = tmp_path / DIGEST
    section = ModelSettings(path=str(file), aliases=["small"], ttl=3)
    models = make(models={"llama3.2": section})
    assert [entry.id for entry in models.entries(show_all=False)] == []
    for ask in (models.located, models.downloaded):
        with pytest.raises(
            LemonbusError, match=rf"llama3\.2 cannot be loaded: its file {DIGEST} is missing"
        ) as missing:
            ask("llama3.2")
        assert missing.value.failure.detail == str(file)
    shutil.copyfile(tiny_models() / "models" / "tiny-embed.gguf", file)
    (listed,) = models.entries(show_all=False)
    assert (listed.id, listed.origin, listed.type, listed.given_names) == ("llama3.2", "files", "embedding", ["small"])
    for name in ("llama3.2", "llama3.2:latest", "small"):
        assert models.spec(name, {}).path == str(file)
    assert models.configuration.of(models.resolve("small")).ttl == 3.0
    assert models.unknown_in_configuration() == []
