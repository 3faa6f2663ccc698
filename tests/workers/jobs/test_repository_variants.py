"""What a repository offers: names, groups, ranking, labels. Pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.messages.model_files import Variant
from protocol.models import repository_files
from workers.jobs.model_download.repository_variants import MAX_FILES, MAX_VARIANTS, list_variants

QWEN = "unsloth/Qwen3-8B-GGUF"


def names(files: list[str], repo: str = QWEN) -> list[str]:
    return [variant.name for variant in list_variants(repo, repo, dict.fromkeys(files, 1)).variants]


def test_the_documents_example() -> None:
    shards = [f"Q8_0/Qwen3-8B-Q8_0-0000{number}-of-00002.gguf" for number in (1, 2)]
    sizes = {shards[1]: 3_500, shards[0]: 5_000, "Qwen3-8B-Q4_K_M.gguf": 4_920, "mmproj-model-f16.gguf": 9, "a.md": 1}
    report = list_variants(QWEN, QWEN, sizes)
    assert (report.checkpoint, report.recipe, report.suggested_name) == (QWEN, "llamacpp", "Qwen3-8B-GGUF")
    assert report.suggested_labels == ["vision"]
    assert report.mmproj_files == ["mmproj-model-f16.gguf"]
    assert report.variants == [
        Variant("Q4_K_M", "Qwen3-8B-Q4_K_M.gguf", ["Qwen3-8B-Q4_K_M.gguf"], False, 4_920),
        Variant("Q8_0", shards[0], shards, True, 8_500),
    ]


@pytest.mark.parametrize(
    ("files", "shown"),
    [
        (
            ["m-Q2_K.gguf", "m-BF16.gguf", "m-Q4_0.gguf", "m-Q8_0.gguf", "m-UD-Q4_K_XL.gguf", "m-Q4_K_M.gguf"],
            ["Q4_K_M", "UD-Q4_K_XL", "Q8_0", "Q4_0", "BF16"],
        ),
        (["m-q6_k.gguf", "m-IQ2_XXS.gguf", "m-Q3_K_S.gguf"], ["IQ2_XXS", "Q3_K_S", "Q6_K"]),
        (["m-fp16.gguf", "m.Q4_K_M.gguf"], ["Q4_K_M", "FP16"]),
        (["a-Q4_0.gguf", "bb-Q4_0.gguf"], ["Q4_0", "bb-Q4_0.gguf"]),
        (["plain.gguf"], ["plain.gguf"]),
        (["m-Q4_0-00001-of-00002.gguf"], []),
        (["model.safetensors", "README.md"], []),
        ([f"m-IQ{number}_M.gguf" for number in range(1, 9)], [f"IQ{number}_M" for number in range(1, 6)]),
    ],
)
def test_the_best_known_come_first_and_at_most_five(files: list[str], shown: list[str]) -> None:
    assert names(files) == shown


@pytest.mark.parametrize(
    ("repo", "labels"),
    [
        ("o/plain-GGUF", []),
        ("nomic/nomic-embed-text-GGUF", ["embeddings"]),
        ("q/Qwen3-Embedding-0.6B-GGUF", ["embeddings"]),
        ("o/bge-Reranker-v2-GGUF", ["reranking"]),
        ("embeddings/x-reranking", ["embeddings", "reranking"]),
    ],
)
def test_the_repositorys_name_tells_labels(repo: str, labels: list[str]) -> None:
    assert list_variants(repo, repo, {"m-Q4_0.gguf": 1}).suggested_labels == labels


def test_projectors_are_named_barely_and_once() -> None:
    sizes = {"b/mmproj-F16.gguf": 1, "a/mmproj-F16.gguf": 1, "mmproj-BF16.gguf": 1}
    report = list_variants(QWEN, QWEN, sizes)
    assert report.mmproj_files == ["mmproj-F16.gguf", "mmproj-BF16.gguf"]
    assert report.variants == []


PARTS = st.sampled_from(
    ["Q4_0", "Q4_K_M", "UD-Q4_K_XL", "q8_0", "a", "b", "-", ".", "/", "_", "mmproj", "-00001-of-00002"]
)
FILES = st.lists(st.lists(PARTS, min_size=1, max_size=5).map(lambda parts: "".join(parts) + ".gguf"), max_size=8)


@given(FILES)
def test_every_variant_can_be_pulled_by_its_name(files: list[str]) -> None:
    for variant in list_variants(QWEN, QWEN, dict.fromkeys(files, 2)).variants:
        assert repository_files.choose_files(files, variant.name) == variant.files
        assert variant.primary_file == variant.files[0]
        assert variant.size_bytes == 2 * len(variant.files)
        assert variant.sharded == (len(variant.files) > 1)


@given(FILES)
def test_the_number_of_variants_is_limited(files: list[str]) -> None:
    assert len(names(files)) <= MAX_VARIANTS


def test_the_files_of_a_repository_that_are_looked_at_are_bounded() -> None:
    files = [f"m{number:05}-q8.gguf" for number in range(MAX_FILES)]
    assert "Q4_K_M" in names([*files[1:], "z-Q4_K_M.gguf"])
    assert "Q4_K_M" not in names([*files, "z-Q4_K_M.gguf"])
