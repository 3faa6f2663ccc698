"""A file that a load names by its path: where it may be, what model it becomes, and which names it may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.failures import Code, LemonbusError
from protocol.models.recipes import ModelSpec
from supervisor.models.registry import ModelRegistry
from tests.supervisor.models.model_files import MakeModels
from tests.support.models.tiny_models import tiny_models


@pytest.fixture
def models(make: MakeModels, extra: Path) -> ModelRegistry:
    for name in ("tiny-chat.gguf", "tiny-embed.gguf"):
        (extra / name).symlink_to(tiny_models() / "models" / name)
    (extra / "notes.gguf").write_bytes(b"GGUFno")
    return make()


def test_a_file_gets_the_name_of_the_load(models: ModelRegistry, extra: Path) -> None:
    entry = models.adopted.adopt_file("mine", str(extra / "tiny-chat.gguf"))
    assert (entry.name, entry.recipe, entry.checkpoint) == ("mine", "llamacpp", "tiny-chat.gguf")
    assert models.resolve("mine") is entry
    found = models.located("mine")
    assert found is not None
    assert found.path == str(extra / "tiny-chat.gguf")
    assert "mine" in [each.id for each in models.entries(show_all=False)]
    again = models.adopted.adopt_file("mine", str(extra / "tiny-embed.gguf"))
    assert models.resolve("mine") is again
    assert again.type == "embedding"
    models.adopted.forget("mine")
    assert models.find("mine") is None


@pytest.mark.parametrize(
    ("name", "path", "mmproj", "param", "code"),
    [
        ("mine", "/etc/passwd", "", "path", Code.INVALID_REQUEST),
        ("mine", "EXTRA/../../../etc/passwd", "", "path", Code.INVALID_REQUEST),
        ("mine", "EXTRA/absent.gguf", "", "path", Code.INVALID_REQUEST),
        ("mine", "EXTRA", "", "path", Code.INVALID_REQUEST),
        ("mine", "EXTRA/tiny-chat.gguf", "/etc/passwd", "mmproj", Code.INVALID_REQUEST),
        ("a/b", "EXTRA/tiny-chat.gguf", "", "alias", Code.INVALID_REQUEST),
        ("mine:latest", "EXTRA/tiny-chat.gguf", "", "alias", Code.INVALID_REQUEST),
        ("Qwen3-0.6B-GGUF", "EXTRA/tiny-chat.gguf", "", "alias", Code.CONFLICT),
        ("llama3.2:1b", "EXTRA/tiny-chat.gguf", "", "alias", Code.CONFLICT),
        ("extra.tiny-embed", "EXTRA/tiny-chat.gguf", "", "alias", Code.CONFLICT),
        ("extra.tiny-chat", "EXTRA/tiny-chat.gguf", "EXTRA/tiny-embed.gguf", "alias", Code.CONFLICT),
        ("extra.later", "EXTRA/tiny-chat.gguf", "", "alias", Code.INVALID_REQUEST),
        ("user.later", "EXTRA/tiny-chat.gguf", "", "alias", Code.INVALID_REQUEST),
    ],
)
def test_files_and_names_that_are_refused(
    models: ModelRegistry, extra: Path, name: str, path: str, mmproj: str, param: str, code: Code
) -> None:
    with pytest.raises(LemonbusError) as raised:
        models.adopted.adopt_file(name, path.replace("EXTRA", str(extra)), mmproj.replace("EXTRA", str(extra)))
    failure = raised.value.failure
    assert (failure.param, failure.code) == (param, code)
    assert "passwd" not in failure.message


def test_a_model_of_the_directory_is_not_hidden_by_its_own_file(models: ModelRegistry, extra: Path) -> None:
    name = "extra.tiny-chat"
    before = models.resolve(name)
    assert models.adopted.adopt_file(name, str(extra / "tiny-chat.gguf")) == before
    with pytest.raises(LemonbusError):
        models.adopted.adopt_file(name, str(extra / "tiny-embed.gguf"))
    assert models.resolve(name) == before
    (extra / "tiny-chat.gguf").unlink()
    assert models.find(name) is None


def test_what_an_earlier_supervisor_had_loaded_is_known_by_its_name_again(make: MakeModels, extra: Path) -> None:
    path = str(extra / "mine.gguf")
    file = ModelSpec("mine", "mine.gguf", "llamacpp", "cpu", "llm", path, labels=["vision"], mmproj=path)
    checkpoint = ModelSpec("a/b-GGUF:Q4_0", "a/b-GGUF:Q4_0", "llamacpp", "cpu", "llm", path)
    models = make()
    models.restore([file, checkpoint])
    found = models.resolve("mine")
    assert (found.path, found.mmproj, found.recipe, found.labels) == (path, path, "llamacpp", ["vision"])
    assert models.resolve("a/b-GGUF:Q4_0").checkpoint == "a/b-GGUF:Q4_0"
    models.restore([file])
    assert models.resolve("mine") is found, "what is known stays as it is"
