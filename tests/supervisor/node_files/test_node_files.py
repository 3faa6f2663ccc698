"""Which node has which files."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from protocol.models.nodes import HEAD
from protocol.models.recipes import ModelSpec
from supervisor.node_files.node_files import NodeFiles

SPEC = ModelSpec("m", "o/m", "llamacpp", "cpu", "llm", "/hub/m.gguf", options={"ctx_size": 4096}, size=100)
PATHS = {"/hub/m.gguf": "/n/m.gguf"}

OTHER_FILES = [
    pytest.param(replace(SPEC, path="/hub/other.gguf"), id="another file"),
    pytest.param(replace(SPEC, mmproj="/hub/mmproj.gguf"), id="a projector"),
    pytest.param(replace(SPEC, size=101), id="another size"),
    pytest.param(replace(SPEC, options={"llamacpp_args": "--lora /l/a.gguf"}), id="an adapter"),
]
SAME_FILES = [
    pytest.param(replace(SPEC, name="copy"), id="another name"),
    pytest.param(replace(SPEC, options={"ctx_size": 0, "llamacpp_args": "--no-mmap"}), id="other options"),
]
NO_FILES = [
    pytest.param(replace(SPEC, path="llama3.2:1b"), id="a tag of a program that keeps its own files"),
    pytest.param(replace(SPEC, path="", size=0), id="no path"),
    pytest.param(replace(SPEC, elsewhere=True), id="another server's"),
]


@pytest.mark.parametrize("spec", OTHER_FILES)
def test_a_node_has_what_it_reported_and_nothing_else(spec: ModelSpec) -> None:
    files = NodeFiles()
    assert not files.has("gpu", SPEC)
    files.found("gpu", SPEC, PATHS)
    assert files.has("gpu", SPEC)
    assert not files.has("gpu", spec)
    assert files.localized(spec, "gpu") == spec
    assert not files.has("other", SPEC)


@pytest.mark.parametrize("spec", SAME_FILES)
def test_other_models_may_have_the_same_files(spec: ModelSpec) -> None:
    files = NodeFiles()
    files.found("gpu", SPEC, PATHS)
    assert files.has("gpu", spec)
    assert files.localized(spec, "gpu") == replace(spec, path="/n/m.gguf")


@pytest.mark.parametrize("spec", NO_FILES)
def test_every_node_has_the_files_of_a_model_without_files(spec: ModelSpec) -> None:
    files = NodeFiles()
    assert files.has("gpu", spec)
    assert files.localized(spec, "gpu") == spec


def test_the_head_has_everything_under_its_own_paths() -> None:
    files = NodeFiles()
    files.found(HEAD, SPEC, PATHS)
    assert files.has(HEAD, replace(SPEC, path="/hub/other.gguf"))
    assert files.localized(SPEC, HEAD) is SPEC


def test_the_nodes_of_a_model() -> None:
    files = NodeFiles()
    files.found("b", SPEC, PATHS)
    files.found("a", SPEC, PATHS, shared=["/n/m.gguf"])
    files.found("c", replace(SPEC, name="other", size=7), {})
    assert files.nodes_with(SPEC) == ["a", "b"]
    assert files.by_model() == {"m": ["a", "b"], "other": ["c"]}
    files.node_left("b")
    assert files.nodes_with(SPEC) == ["a"]
    assert not files.has("b", SPEC)


def test_a_deleted_model_is_on_no_node() -> None:
    files = NodeFiles()
    larger = replace(SPEC, size=200)
    files.found("a", SPEC, PATHS, shared=["/n/m.gguf"])
    files.found("a", larger, PATHS)
    files.found("b", replace(SPEC, name="other"), PATHS)
    taken = files.take("m")
    assert [(copy.paths, copy.shared) for copy in taken.pop("a")] == [(PATHS, {"/n/m.gguf"}), (PATHS, set())]
    assert not taken
    assert not files.has("a", SPEC)
    assert files.has("b", SPEC)
    assert files.take("m") == {}
