"""The call that shows what the configuration says for one model, and its report."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.messages.calls import repeated_call
from protocol.messages.models import ModelEntry
from protocol.models.recipes import OptionValue


@repeated_call
class ShowModel(msgspec.Struct, frozen=True):
    """Gateway → supervisor: what is configured for this model → :class:`ConfiguredModel`."""

    number: int
    model: str


class ConfiguredValue(msgspec.Struct, frozen=True):
    """One value, and where it comes from."""

    name: str
    value: Any
    origin: str
    """A section (``models.NAME``, ``defaults.RECIPE``), ``settings``, ``recipe``, ``catalogue`` or a file of the state."""


class ConfiguredModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """The configuration of a model. Environment variables of its engine are masked, because they often hold secrets."""

    entry: ModelEntry
    names: list[str]
    """Its aliases: from the configuration, from the catalogue, and those that users gave."""
    options: list[ConfiguredValue]
    """The load options of a load request that gives none."""
    settings: list[ConfiguredValue]
    """Settings of its sections other than options and arguments: ``ttl``, ``set`` …"""
    groups: list[str] = []
    state: str = ""
    """A state of the model's lifecycle; empty if it is neither loaded nor requested."""
    loaded_options: dict[str, OptionValue] = {}
    """The load options that its engine was started with; empty if it is not loaded."""
