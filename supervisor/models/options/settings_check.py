"""Whether the recipes accept the settings of a server: at its start, at a reload, and for ``lemonbus config``."""

from __future__ import annotations

from pathlib import Path

from protocol.config.settings import Settings
from supervisor.models.catalogues import catalogue, user_models
from supervisor.models.catalogues.extra_models import ExtraModels
from supervisor.models.catalogues.user_models import UserModels
from supervisor.models.names import NameIndex
from supervisor.models.options import configured_options, load_options


def check_settings(settings: Settings) -> None:
    """Raise ``invalid_request`` for the first setting that a recipe does not accept, with its name as ``param``."""
    load_options.check_settings(settings)
    index = _known_models(settings)

    def recipe_of(name: str) -> str:
        found = index.find(name)
        return found.recipe if found else ""

    configured_options.check_sections(settings, recipe_of)


def _known_models(settings: Settings) -> NameIndex:
    """Return the models that sections may mean. Nothing is written: another user may run this for ``lemonbus config``."""
    if not settings.models:
        return NameIndex()
    built_in = NameIndex(catalogue.built_in())
    if all(built_in.find(name) for name in settings.models):
        return built_in
    extra = ExtraModels(settings.extra_models_dir)
    extra.refresh()
    registered = UserModels(Path(settings.state_dir) / user_models.FILE)
    registered.refresh()
    return NameIndex(catalogue.built_in(), registered.entries, extra.entries)
