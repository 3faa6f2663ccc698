"""``GET /internal/configuration?model=NAME`` and ``GET /internal/settings``: what a model and this server run with, and where each value comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from gateway.api.common.operations import MODEL
from gateway.api.common.routes import HttpCaller, Nothing, route
from protocol import RELEASE
from protocol.config.fields import setting_fields
from protocol.config.resolver import masked
from protocol.config.sections import section_values
from protocol.config.settings import read_origins, read_settings
from protocol.messages.model_details import ConfiguredModel, ConfiguredValue, ShowModel
from protocol.messages.model_files import ModelFile
from protocol.models.recipes import LoadOption, ModelOrigin, OptionValue


class ConfigurationQuery(msgspec.Struct):
    """Which model."""

    model: Annotated[str, Meta(min_length=1)]


class ConfigurationAnswer(msgspec.Struct):
    """The configuration of a model."""

    id: str
    """The registered name."""
    names: list[str]
    recipe: str
    type: str
    downloaded: bool
    """Whether it can be loaded without a download."""
    origin: ModelOrigin
    state: str
    options: list[ConfiguredValue]
    settings: list[ConfiguredValue]
    groups: list[str]
    loaded_options: dict[str, OptionValue]
    known_options: list[LoadOption]
    """The load options that its recipe has."""
    files: list[ModelFile]


@route("GET", "/internal/configuration", changes=True, failures=MODEL)  # arguments name files of this machine
def show_configuration(caller: HttpCaller, query: ConfigurationQuery) -> ConfigurationAnswer:
    """Shows what is configured for a model, and where each value comes from."""
    found = caller.ask(lambda number: ShowModel(number, query.model), ConfiguredModel)
    entry = found.entry
    return ConfigurationAnswer(
        entry.id,
        found.names,
        entry.recipe,
        entry.type,
        entry.downloaded,
        entry.origin,
        found.state,
        found.options,
        found.settings,
        found.groups,
        found.loaded_options,
        found.known_options,
        found.files,
    )


class SettingInUse(msgspec.Struct):
    """A setting as the server uses it."""

    value: Any
    """Secrets are masked."""
    origin: str
    """A flag, a variable, ``FILE:LINE``, or ``default``."""


class SettingsAnswer(msgspec.Struct):
    """All settings of this server, with those of sections by their dotted names."""

    release: str
    settings: dict[str, SettingInUse]


@route("GET", "/internal/settings", changes=True)  # they name directories of this machine
def show_settings(caller: HttpCaller, _request: Nothing) -> SettingsAnswer:
    """Shows the settings of this server, and where each comes from."""
    # Another process may have accepted others since this one started.
    runtime = Path(caller.session.settings.runtime_dir)
    settings, origins = read_settings(runtime), read_origins(runtime)
    values = {name: masked(name, getattr(settings, name)) for name in setting_fields()} | section_values(settings)
    found = {name: SettingInUse(value, origins.get(name, "default")) for name, value in values.items()}
    return SettingsAnswer(RELEASE, found)
