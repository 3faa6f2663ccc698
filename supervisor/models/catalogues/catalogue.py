"""Entries of models: the built-in catalogue, and the items that it and ``user_models.json`` may have, in Lemonade's format.

In addition to Lemonade's fields, an item may have ``sources``: where the same files can be had, in the order to try (a
wheel is pinned by sha256); and ``aliases``: other names of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from protocol.failures import LemonbusError, printable
from protocol.messages.model_details import DefaultModel
from protocol.messages.model_files import CheckpointSource
from protocol.models import checkpoints
from protocol.models.recipes import ModelType, OptionValue
from workers.backends.registry import DESCRIPTORS

CATALOGUE_FILE: Final = Path(__file__).parents[2] / "data" / "models.json"
DEFAULT_MODELS_FILE: Final = CATALOGUE_FILE.with_name("default_models.json")
"""The models that are offered for a quick start: a name in the catalogue → description, number of parameters, tags."""
MAX_NAME_LENGTH: Final = 255

_TYPE_BY_LABEL: Final = {
    "embeddings": ModelType.EMBEDDING,
    "embedding": ModelType.EMBEDDING,
    "reranking": ModelType.RERANKING,
    "reranker": ModelType.RERANKING,
    "transcription": ModelType.AUDIO,
    "audio": ModelType.AUDIO,
    "image": ModelType.IMAGE,
    "tts": ModelType.TTS,
}
_LABEL_BY_FLAG: Final = {
    "reasoning": "reasoning",
    "vision": "vision",
    "embedding": "embeddings",
    "reranking": "reranking",
}
"""Switches of a pull request that older files have instead of labels."""

Text = Annotated[str, Meta(min_length=1, max_length=512)]


class CatalogueEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model that can be named. ``size`` in gigabytes (10⁹ bytes)."""

    name: str
    checkpoint: str
    recipe: str
    sources: list[CheckpointSource] = []
    """Where its files can be had; empty for files of the extra models directory."""
    labels: list[str] = []
    suggested: bool = False
    size: float = 0.0
    registered: int = 0
    """Unix seconds."""
    path: str = ""
    """Only for the extra models directory and for a section with ``path``: the (first) file."""
    mmproj: str = ""
    """Likewise: the vision projector."""
    parts: dict[str, str] = {}
    """Likewise: part of the model → its file."""
    aliases: list[str] = []
    options: dict[str, OptionValue] = {}
    """Load options of this model, unless a load sets others."""

    configured: bool = False
    """Whether a section of the configuration makes the model: it cannot be downloaded or deleted. Without ``path``, it has no files here."""

    @property
    def checkpoints(self) -> dict[str, str]:
        """The checkpoints of a model that has parts: ``main`` and each part; otherwise empty."""
        parts = self.sources[0].parts if self.sources else {}
        return {"main": self.checkpoint, **{part: each.checkpoint for part, each in parts.items()}} if parts else {}

    @property
    def short_name(self) -> str:
        """Its name in the form ``NAME:TAG`` if it has one, else its registered name."""
        return self.aliases[0] if self.aliases else self.name

    @property
    def type(self) -> ModelType:
        """The type according to its labels, or else to its recipe."""
        descriptor = DESCRIPTORS.get(self.recipe)
        by_recipe = descriptor.model_type if descriptor else ModelType.LLM
        return next((_TYPE_BY_LABEL[label] for label in self.labels if label in _TYPE_BY_LABEL), by_recipe)


class _CatalogueItem(msgspec.Struct, frozen=True, omit_defaults=True):
    recipe: Text
    checkpoint: Annotated[str, Meta(max_length=512)] = ""
    checkpoints: dict[str, Text] = {}
    mmproj: Annotated[str, Meta(max_length=255)] = ""
    labels: list[Text] = []
    suggested: bool = False
    size: Annotated[float, Meta(ge=0)] = 0.0
    sources: list[CheckpointSource] = []
    aliases: list[Text] = []
    image_defaults: dict[str, OptionValue] = {}
    recipe_options: dict[str, OptionValue] = {}
    reasoning: bool = False
    vision: bool = False
    embedding: bool = False
    reranking: bool = False


def entry(name: str, item: Any, registered: int = 0) -> CatalogueEntry:
    """Return the entry for an item of a catalogue file; raises ValueError saying what is wrong."""
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise ValueError(f"{printable(name)!r} cannot be a name")
    try:
        item_fields = msgspec.convert(item, _CatalogueItem)
        if keys := _section_keys(item_fields.recipe):
            raise ValueError(
                f"recipe {item_fields.recipe} is only for sections of the configuration file, with {' or '.join(keys)}"
            )
        checkpoint, mmproj = _main_checkpoint(item_fields)
        known = DESCRIPTORS[item_fields.recipe].parts if item_fields.recipe in DESCRIPTORS else {}
        parts = {part: CheckpointSource(each) for part, each in item_fields.checkpoints.items() if part in known}
        sources = item_fields.sources or [
            CheckpointSource(checkpoint=source_of(item_fields.recipe, checkpoint), mmproj=mmproj, parts=parts)
        ]
        for source in sources:
            _check_parts(source, known)
            found = checkpoints.parse(source.checkpoint)
            in_packages = isinstance(found, checkpoints.PackagesCheckpoint)
            if (in_packages or isinstance(found, checkpoints.WheelCheckpoint)) and not source.sha256:
                raise ValueError(f"source {source.checkpoint} needs `sha256`")
            if in_packages != bool(source.packages):
                raise ValueError(f"source {source.checkpoint}: `packages` belong to a checkpoint packages:FOLDER#FILE")
            if isinstance(found, checkpoints.TagCheckpoint) and found.scheme != _scheme(item_fields.recipe):
                raise ValueError(f"source {source.checkpoint} is not a checkpoint for recipe {item_fields.recipe}")
    except (msgspec.ValidationError, LemonbusError) as problem:
        raise ValueError(str(problem)) from None
    labels = item_fields.labels + [
        label
        for flag, label in _LABEL_BY_FLAG.items()
        if getattr(item_fields, flag) and label not in item_fields.labels
    ]
    return CatalogueEntry(
        name=name,
        checkpoint=checkpoint,
        recipe=item_fields.recipe,
        sources=sources,
        labels=labels,
        suggested=item_fields.suggested,
        size=item_fields.size,
        registered=registered,
        aliases=item_fields.aliases,
        options={**item_fields.image_defaults, **item_fields.recipe_options},
    )


def _check_parts(source: CheckpointSource, known: Collection[str]) -> None:
    """Raise ValueError or LemonbusError for parts that a recipe's models do not have, and for those that are not files of a hub."""
    for part, each in source.parts.items():
        if part not in known:
            raise ValueError(f"source {source.checkpoint} has a part {printable(part)}, which its recipe does not use")
        if not is_hub_file(each.checkpoint) or each.parts or not is_hub(source.checkpoint):
            raise ValueError(f"the part {part} must be owner/repo:file of a Hugging Face hub, and so must the model")


def is_hub(checkpoint: str) -> bool:
    """Return whether a checkpoint is one of a Hugging Face hub; raises ``invalid_request`` if it is none at all."""
    return isinstance(checkpoints.parse(checkpoint), checkpoints.HubCheckpoint)


def is_hub_file(checkpoint: str) -> bool:
    """Return whether a checkpoint names a file or a quantization of a hub's repository; raises like :func:`is_hub`."""
    parsed = checkpoints.parse(checkpoint)
    return isinstance(parsed, checkpoints.HubCheckpoint) and parsed.variant not in ("", "*")


class _DefaultModelItem(msgspec.Struct, frozen=True):
    description: Text
    size_hint: Text
    tags: list[Text]


def default_models(resolve: Callable[[str], CatalogueEntry], path: Path = DEFAULT_MODELS_FILE) -> list[DefaultModel]:
    """Return the models that are offered for a quick start. ``resolve`` returns the entry that a name means."""
    items = msgspec.json.decode(path.read_bytes(), type=dict[str, _DefaultModelItem])
    return [
        DefaultModel(
            name=name,
            description=item.description,
            size_hint=item.size_hint,
            tags=item.tags,
            checkpoint=resolve(name).checkpoint,
            labels=resolve(name).labels,
        )
        for name, item in items.items()
    ]


def source_of(recipe: str, checkpoint: str) -> str:
    """Return a recipe's checkpoint in the grammar of sources: with the recipe's scheme if it has its own."""
    scheme = _scheme(recipe)
    return f"{scheme}:{checkpoint}" if scheme and not checkpoint.startswith(f"{scheme}:") else checkpoint


def _main_checkpoint(item_fields: _CatalogueItem) -> tuple[str, str]:
    """Return checkpoint and projector, from either of Lemonade's two forms."""
    checkpoint = item_fields.checkpoint or item_fields.checkpoints.get("main", "")
    if not checkpoint:
        raise ValueError("`checkpoint` is missing")
    strange = sorted(set(item_fields.checkpoints) - checkpoint_roles(item_fields.recipe))
    if strange:
        raise ValueError(f"`checkpoints` has {', '.join(strange)}, which recipe {item_fields.recipe} does not use")
    mmproj = item_fields.mmproj
    projector = item_fields.checkpoints.get("mmproj", "")
    if projector:
        repo, _, mmproj = projector.rpartition(":")
        if repo != checkpoint.partition(":")[0]:
            raise ValueError("`checkpoints.mmproj` must be a file of the same repository")
    return checkpoint, mmproj


def _scheme(recipe: str) -> str:
    return DESCRIPTORS[recipe].checkpoint_scheme if recipe in DESCRIPTORS else ""


def _section_keys(recipe: str) -> list[str]:
    return DESCRIPTORS[recipe].section_keys if recipe in DESCRIPTORS else []


def checkpoint_roles(recipe: str) -> set[str]:
    """Return the keys that ``checkpoints`` of a model of this recipe may have."""
    found = DESCRIPTORS.get(recipe)
    return {"main", "mmproj", *([*found.parts, *found.optional_checkpoints] if found else [])}


@cache
def released(path: Path = CATALOGUE_FILE) -> int:
    """Return when the catalogue came to this machine, in Unix seconds.

    Its models have no other date, and are not older here.
    """
    return max(1, int(path.stat().st_mtime))


def built_in(path: Path = CATALOGUE_FILE) -> dict[str, CatalogueEntry]:
    """Return the built-in catalogue; raises ValueError if an item is wrong (a test reads them all)."""
    items = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    return {name: entry(name, item) for name, item in items.items()}
