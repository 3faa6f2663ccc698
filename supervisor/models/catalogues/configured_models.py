"""The models that sections of the configuration make: a program of the operator's own runs them, or another server. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.config.model_settings import OWN_ENGINE_KEYS, EngineSettings, ModelSettings
from protocol.models.recipes import ModelType
from supervisor.models.catalogues.catalogue import CatalogueEntry
from workers.backends.registry import DESCRIPTORS

_LABELS: Final[dict[str, str]] = {
    ModelType.EMBEDDING: "embeddings",
    ModelType.RERANKING: "reranking",
    ModelType.AUDIO: "transcription",
    ModelType.IMAGE: "image",
    ModelType.TTS: "tts",
}
"""Type → the label that says it."""


def recipe_of(section: EngineSettings) -> str:
    """Return the recipe that a section chooses by its keys; empty if it is about a model that is known otherwise."""
    given = {name for name in OWN_ENGINE_KEYS if getattr(section, name)}
    return next((each.recipe for each in DESCRIPTORS.values() if not given.isdisjoint(each.section_keys)), "")


def configured_entries(sections: Mapping[str, ModelSettings]) -> dict[str, CatalogueEntry]:
    """Return the entries of the sections that name a program or a server, by name. Their other names are those of the section."""
    return {name: _entry(name, section) for name, section in sections.items() if recipe_of(section)}


def _entry(name: str, section: EngineSettings) -> CatalogueEntry:
    label = _LABELS.get(section.type)
    return CatalogueEntry(
        name=name,
        checkpoint=section.served_name or "",
        recipe=recipe_of(section),
        labels=[*([label] if label else []), *(each for each in section.capabilities if each not in _LABELS.values())],
        suggested=True,
        configured=True,
    )
