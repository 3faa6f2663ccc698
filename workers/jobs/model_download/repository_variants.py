"""The variants of a repository: its GGUF models and the words that select them, in the documented form of ``pull/variants``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.messages.model_files import Variant, Variants
from protocol.models import repository_files
from protocol.models.recipes import DEFAULT_RECIPE

MAX_VARIANTS: Final = 5
MAX_FILES: Final = 1_000
"""GGUF files of a repository that are looked at. No real one has more, and the work grows with their square."""


def list_variants(checkpoint: str, repo: str, sizes: Mapping[str, int]) -> Variants:
    """Return the variants of a repository. ``sizes``: bytes of its files by name."""
    files = sorted(file for file in sizes if file.lower().endswith(".gguf"))[:MAX_FILES]
    projectors = [file.rsplit("/", 1)[-1] for file in files if repository_files.is_projector(file)]
    found = [
        Variant(_name(group, files), group[0], group, len(group) > 1, sum(sizes[file] for file in group))
        for group in repository_files.gguf_models(files)
    ]
    return Variants(
        checkpoint=checkpoint,
        recipe=DEFAULT_RECIPE,
        suggested_name=repo.split("/", 1)[1],
        suggested_labels=_labels(repo, bool(projectors)),
        mmproj_files=list(dict.fromkeys(projectors)),
        variants=sorted(found, key=_rank)[:MAX_VARIANTS],
    )


def _name(group: list[str], files: list[str]) -> str:
    """Return the quantization, if it means only this model, else the file."""
    name = repository_files.quantization(group[0])
    return name if name and repository_files.choose_files(files, name) == group else group[0]


def _rank(variant: Variant) -> tuple[int, str]:
    known = repository_files.QUANTIZATION_RANKING
    return (known.index(variant.name) if variant.name in known else len(known), variant.name)


def _labels(repo: str, vision: bool) -> list[str]:
    lowered = repo.lower()
    found = ["vision"] if vision else []
    if "embed" in lowered:
        found.append("embeddings")
    if "rerank" in lowered:
        found.append("reranking")
    return found
