"""The sections of the configuration file: ``[models."NAME"]``, ``[defaults.RECIPE]`` and ``[groups.NAME]``.

The values are immutable and comparable, so that a reload can tell which settings have changed. ``None`` or an empty
value means that the section does not set it.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from protocol.models.recipes import OptionValue

Text = Annotated[str, Meta(min_length=1, max_length=4096)]
ModelName = Annotated[str, Meta(min_length=1, max_length=256)]
FieldName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}\Z")]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}\Z")]
DeviceName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9:._-]{0,63}\Z")]


class RecipeDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[defaults.RECIPE]``: settings of all models of a recipe."""

    options: dict[str, OptionValue] = {}
    """Load options, as in a load request: ``ctx_size``, ``slots`` …"""
    args: str | None = None
    """More arguments for the engine, split as a shell splits words: the recipe's option ``…_args`` under one name."""
    env: dict[VariableName, Annotated[str, Meta(max_length=4096)]] = {}
    """Environment variables of the engine."""
    devices: list[DeviceName] | None = None
    """Devices that the engine may use: numbers or UUIDs of GPUs, or llama.cpp's names (``CUDA0``, ``Vulkan1``)."""
    ttl: Annotated[float, Meta(ge=0, le=31_536_000)] | None = None
    """Seconds without a request after which the model is unloaded; 0: never."""
    pin: bool | None = None
    """Whether the model is protected from eviction."""
    concurrency: Annotated[int, Meta(ge=1, le=256)] | None = None
    """How many requests run at once. The engine's slots are the upper limit."""
    queue: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    """Requests of each API key that may wait for the model, instead of ``queue_requests``."""
    set: dict[FieldName, Any] = {}
    """Fields that every request gets, in OpenAI's form, overriding the client's."""
    drop: list[FieldName] = []
    """Fields that are removed from every request."""
    system_prompt: Annotated[str, Meta(max_length=65_536)] | None = None
    """System message of chats that come without one; empty: none."""


class ModelSettings(RecipeDefaults, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[models."NAME"]``: settings of one model. NAME is any name that the model has."""

    aliases: list[ModelName] = []
    """Further names of the model."""
    preload: bool = False
    """Whether the model is loaded at the start."""


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``[groups.NAME]``: how some models share the machine. A model is in at most one group."""

    models: Annotated[list[ModelName], Meta(min_length=1)]
    """The models of the group, by any of their names."""
    exclusive: bool = False
    """Whether models outside the group must be unloaded while one of the group is loaded."""
    swap: bool = False
    """Whether at most one model of the group is loaded: the same as ``max_loaded = 1``."""
    max_loaded: Annotated[int, Meta(ge=0, le=10_000)] = 0
    """How many models of the group may be loaded at once; 0: the group sets no limit."""


def merge_model_settings(defaults: RecipeDefaults, model: ModelSettings) -> ModelSettings:
    """Return the settings of a model: its own section, completed from the section of its recipe.

    ``options``, ``env`` and ``set`` are merged name by name, and ``drop`` has the fields of both. Any other setting is
    the model's own or, if it has none, the recipe's.
    """
    return ModelSettings(
        options={**defaults.options, **model.options},
        args=_first(model.args, defaults.args),
        env={**defaults.env, **model.env},
        devices=_first(model.devices, defaults.devices),
        ttl=_first(model.ttl, defaults.ttl),
        pin=_first(model.pin, defaults.pin),
        concurrency=_first(model.concurrency, defaults.concurrency),
        queue=_first(model.queue, defaults.queue),
        set={**defaults.set, **model.set},
        drop=list(dict.fromkeys([*defaults.drop, *model.drop])),
        system_prompt=_first(model.system_prompt, defaults.system_prompt),
        aliases=model.aliases,
        preload=model.preload,
    )


def _first(own: Any, default: Any) -> Any:
    return default if own is None else own
