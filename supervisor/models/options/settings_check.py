"""Whether the recipes accept the settings of a server: at its start, at a reload, and for ``lemonbus config``. Pure."""

from __future__ import annotations

from protocol.config.settings import Settings
from supervisor.models.catalogues import catalogue
from supervisor.models.names import NameIndex
from supervisor.models.options import configured_options, load_options


def check_settings(settings: Settings) -> None:
    """Raise ``invalid_request`` for the first setting that a recipe does not accept, with its name as ``param``."""
    load_options.check_settings(settings)
    built_in = NameIndex(catalogue.built_in() if settings.models else {})

    def recipe_of(name: str) -> str:
        found = built_in.find(name)
        return found.recipe if found else ""

    configured_options.check_sections(settings, recipe_of)
