"""The files that a spec names, and their paths on another node."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from protocol.models.node_paths import localized, named_paths
from protocol.models.recipes import ModelSpec

SPEC = ModelSpec("m", "o/m", "llamacpp", "cpu", "llm", "/hub/m.gguf", "/hub/mmproj.gguf", options={"slots": 2})
PATHS = {"/hub/m.gguf": "/n/m.gguf", "/hub/mmproj.gguf": "/n/p.gguf", "/l/a b.gguf": "/n/a b.gguf", "/l/c.gguf": "/n/c"}


def with_arguments(text: str) -> ModelSpec:
    return replace(SPEC, options={"slots": 2, "llamacpp_args": text})


ARGUMENTS = [
    pytest.param("--no-mmap -t 1", [], "--no-mmap -t 1", id="no file"),
    pytest.param("--lora /l/c.gguf", ["/l/c.gguf"], "--lora /n/c", id="a word"),
    pytest.param("--lora='/l/a b.gguf'", ["/l/a b.gguf"], "'--lora=/n/a b.gguf'", id="after an equals sign, quoted"),
    pytest.param(
        "--lora-scaled /l/c.gguf:0.5,'/l/a b.gguf:1e-1'",
        ["/l/c.gguf", "/l/a b.gguf"],
        "--lora-scaled '/n/c:0.5,/n/a b.gguf:1e-1'",
        id="several with scales",
    ),
    pytest.param("--x a/l/c.gguf,b --y=/z", ["/z"], "--x a/l/c.gguf,b --y=/z", id="relative, and one that stays"),
    pytest.param("  --lora   /z:x ", ["/z:x"], "  --lora   /z:x ", id="a colon in a name"),
]


@pytest.mark.parametrize(("text", "named", "translated"), ARGUMENTS)
def test_the_files_in_arguments_get_the_paths_of_the_node(text: str, named: list[str], translated: str) -> None:
    spec = with_arguments(text)
    assert named_paths(spec) == ["/hub/m.gguf", "/hub/mmproj.gguf", *named]
    assert localized(spec, PATHS).options == {"slots": 2, "llamacpp_args": translated}


def test_a_spec_gets_the_paths_of_the_node() -> None:
    found = localized(SPEC, PATHS)
    assert found == replace(SPEC, path="/n/m.gguf", mmproj="/n/p.gguf")
    assert localized(SPEC, {}) is SPEC
    assert localized(SPEC, {"/other": "/x"}) == SPEC


def test_parts_get_the_paths_of_the_node() -> None:
    spec = replace(SPEC, mmproj="", parts={"vae": "/hub/v.gguf", "clip_l": "/hub/c.gguf"})
    assert named_paths(spec) == ["/hub/m.gguf", "/hub/v.gguf", "/hub/c.gguf"]
    assert localized(spec, {"/hub/v.gguf": "/n/v.gguf"}).parts == {"vae": "/n/v.gguf", "clip_l": "/hub/c.gguf"}


def test_a_folder_is_where_its_files_are() -> None:
    spec = replace(SPEC, path="/hub/onnx", mmproj="")
    paths = {"/hub/onnx2/a": "/n/onnx2/a", "/hub/onnx/a/b.onnx": "/n/x/a/b.onnx"}
    assert localized(spec, paths).path == "/n/x"


@pytest.mark.parametrize("path", ["", "llama3.2:1b"])
def test_other_texts_than_paths_stay(path: str) -> None:
    spec = replace(SPEC, path=path, mmproj="")
    assert named_paths(spec) == []
    assert localized(spec, PATHS) == spec
