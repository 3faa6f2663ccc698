"""``GET /internal/configuration?model=NAME``: the configuration of a model, and where each value comes from."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from gateway.api.common.operations import MODEL
from gateway.api.common.routes import HttpCaller, route
from protocol.messages.model_details import ConfiguredModel, ConfiguredValue, ShowModel
from protocol.models.recipes import OptionValue


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
    state: str
    options: list[ConfiguredValue]
    settings: list[ConfiguredValue]
    groups: list[str]
    loaded_options: dict[str, OptionValue]


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
        found.state,
        found.options,
        found.settings,
        found.groups,
        found.loaded_options,
    )
