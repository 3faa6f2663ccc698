"""Models that are made of several files: where the parts are, and what is said of a missing one."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.config.model_settings import ModelSettings
from protocol.config.settings import Settings
from protocol.failures import LemonbusError
from protocol.messages.model_files import ModelFile
from supervisor.models import files
from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.file_models import FileModels
from supervisor.models.options.settings_check import check_settings
from tests.supervisor.models.model_files import MakeModels, user_file, write_files, write_hub_cache

Z_IMAGE = {
    "checkpoints": {"main": "o/z:z.gguf", "text_encoder": "o/qwen:Q4_0", "vae": "o/vae:split/ae.safetensors"},
    "recipe": "sd-cpp",
}


def test_a_model_is_here_when_all_of_its_parts_are(make: MakeModels, tmp_path: Path) -> None:
    user_file(tmp_path, {"Z": Z_IMAGE})
    models = make()
    write_hub_cache(tmp_path, "o/z", "z.gguf")
    write_hub_cache(tmp_path, "o/vae", "split/ae.safetensors")
    assert not models.downloaded("user.Z")
    with pytest.raises(LemonbusError, match="not downloaded"):
        models.spec("user.Z", {})
    write_hub_cache(tmp_path, "o/qwen", "qwen-Q4_0.gguf")
    spec = models.spec("user.Z", {})
    assert Path(spec.path).name == "z.gguf"
    assert {part: Path(path).name for part, path in spec.parts.items()} == {
        "text_encoder": "qwen-Q4_0.gguf",
        "vae": "ae.safetensors",
    }
    assert spec.size == 24
    listed = models.entry("user.Z")
    assert (listed.checkpoint, listed.checkpoints) == ("o/z:z.gguf", Z_IMAGE["checkpoints"])
    shown = files.all_files(models.resolve("user.Z"), str(tmp_path))
    assert sorted((Path(each.path).name, each.size, each.part) for each in shown) == [
        ("ae.safetensors", 8, "vae"),
        ("qwen-Q4_0.gguf", 8, "text_encoder"),
        ("z.gguf", 8, ""),
    ]


def test_a_section_names_the_files_of_the_parts(make: MakeModels, tmp_path: Path) -> None:
    write_files(tmp_path, "z", "llm", "vae")
    section = ModelSettings(
        path=str(tmp_path / "z"), parts={"text_encoder": str(tmp_path / "llm"), "vae": str(tmp_path / "vae")}
    )
    models = make(models={"z": section})
    spec = models.spec("z", {})
    assert (spec.recipe, spec.type, spec.size, spec.parts) == ("sd-cpp", "image", 24, section.parts)
    assert [each.part for each in files.all_files(models.resolve("z"), "")] == ["", "text_encoder", "vae"]
    (tmp_path / "vae").write_bytes(b"")
    with pytest.raises(LemonbusError, match="its vae is empty"):
        models.located("z")
    (tmp_path / "llm").unlink()
    with pytest.raises(LemonbusError, match="its text_encoder llm is missing"):
        models.located("z")
    assert files.all_files(models.resolve("z"), "")[-1] == ModelFile(str(tmp_path / "vae"), 0, "vae")


def test_parts_decide_the_recipe_and_must_be_ones_of_some_recipe(tmp_path: Path) -> None:
    unknown = ModelSettings(path="/m/z", parts={"wings": "/m/w"})
    with pytest.raises(LemonbusError, match=r"models\.z\.parts\.wings: no recipe has such a part; there are: clip_g, "):
        check_settings(Settings(models={"z": unknown}))
    known = ModelSettings(path="/m/z", parts={"vae": "/m/w"})
    check_settings(Settings(models={"z": known}))
    assert FileModels({"z": known}).entries["z"].recipe == "sd-cpp"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ({"recipe": "llamacpp", "checkpoints": {"main": "o/r:Q4_0", "vae": "o/v:v"}}, "which recipe llamacpp does not"),
        ({"recipe": "sd-cpp", "checkpoints": {"vae": "o/v:v"}}, "`checkpoint` is missing"),
        ({"recipe": "sd-cpp", "checkpoints": {"main": "o/r:m", "vae": "o/v"}}, "the part vae must be owner/repo:file"),
        ({"recipe": "sd-cpp", "checkpoints": {"main": "o/r:m", "vae": "no"}}, "a checkpoint is owner/repo"),
    ],
)
def test_a_bad_item(item: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        catalogue.entry("user.z", item)


def test_sources_with_parts_of_their_own() -> None:
    part = {"checkpoint": "o/v:v", "sha256": "ab"}
    source = {"checkpoint": "o/r:m", "parts": {"vae": part}}
    item = {"recipe": "sd-cpp", "checkpoint": "o/r:m", "sources": [source]}
    assert catalogue.entry("z", item).sources[0].parts["vae"].sha256 == "ab"
    for wrong in ({"wings": part}, {"vae": {**part, "parts": {"vae": part}}}, {"vae": {**part, "checkpoint": "o/v"}}):
        with pytest.raises(ValueError, match=r"wings|the part vae"):
            catalogue.entry("z", {**item, "sources": [{**source, "parts": wrong}]})
