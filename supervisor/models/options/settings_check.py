"""Whether the recipes accept the settings of a server: at its start, at a reload, and for ``lemonbus config``."""

from __future__ import annotations

import importlib.util
import math
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from protocol.config.model_settings import RecipeDefaults
from protocol.config.sections import dotted_name
from protocol.config.settings import Settings
from protocol.failures import LemonbusError, invalid
from protocol.models.recipes import Provision
from protocol.runtime.accounts import check_user
from protocol.runtime.control_groups import CONTROLLERS, CPU, MEMORY, parent_of_engines
from supervisor.models import user_aliases
from supervisor.models.catalogues import catalogue, user_models
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.catalogues.configured_models import configured_entries
from supervisor.models.catalogues.extra_models import ExtraModels
from supervisor.models.catalogues.file_models import FileModels
from supervisor.models.catalogues.user_models import UserModels
from supervisor.models.names import NameIndex
from supervisor.models.options import load_options
from supervisor.models.options.load_options import SectionProblem, section_problems
from supervisor.models.options.model_configuration import ModelConfiguration
from workers.backends.registry import DESCRIPTORS

_PARTS: Final = {part for each in DESCRIPTORS.values() for part in each.parts}
_NO_DEFAULTS: Final = RecipeDefaults()
NO_GROUP: Final = "no control group for an engine can be made here"
MEMORY_WATCHED: Final = f"{NO_GROUP}; the engine's memory is looked at four times a second instead"
NICE_REFUSED: Final = "it is left out: a negative value needs root, or a limit on nice values that allows it"


class SettingWarning(NamedTuple):
    """A setting that currently has no effect."""

    setting: str
    """Its dotted name."""
    text: str


def check_settings(settings: Settings) -> None:
    """Raise ``invalid_request`` for the first setting that this installation or a recipe does not accept, with its name as ``param``."""
    if settings.placement == "ray" and importlib.util.find_spec("ray") is None:
        raise invalid("placement = \"ray\" needs the package ray: pip install 'lemonbus[ray]'", "placement")
    _check_defaults(settings)
    built_in = NameIndex(catalogue.built_in() if settings.models else {})
    index = built_in if all(built_in.find(name) for name in settings.models) else _known_models(settings)

    def recipe_of(name: str) -> str:
        found = index.find(name)
        return found.recipe if found else ""

    _check_sections(settings, recipe_of)


def _check_defaults(settings: Settings) -> None:
    """Raise ``invalid_request`` for the first setting that a recipe would not accept as its option."""
    for descriptor in DESCRIPTORS.values():
        for name, value in load_options.defaults(descriptor, settings).items():
            try:
                load_options.check_option(descriptor, name, value)
            except LemonbusError as problem:
                setting = name.replace("-", "")
                raise invalid(str(problem).replace(name, setting), setting) from problem
        if problem_of_engine := load_options.engine_arguments_problem(
            descriptor, load_options.defaults(descriptor, settings), settings
        ):
            raise invalid(problem_of_engine, f"{descriptor.recipe}_args")


def _check_sections(settings: Settings, recipe_of: Callable[[str], str]) -> None:
    """Raise ``invalid_request`` for the first setting of a section that no recipe, or not its model's recipe, accepts.

    ``recipe_of``: name of a model → its recipe; empty if the model is not known (yet).  The section of such a model must be
    one that some recipe accepts.
    """
    for recipe, defaults in settings.defaults.items():
        descriptor = DESCRIPTORS.get(recipe)
        if descriptor is None:
            path = dotted_name(("defaults", recipe))
            known = ", ".join(DESCRIPTORS)
            raise invalid(f"{path}: there is no such recipe; there are: {known}", path)
        _raise_first(("defaults", recipe), section_problems(descriptor, defaults, settings))
    for name, section in settings.models.items():
        strange = sorted(section.parts.keys() - _PARTS)
        if strange:
            path = dotted_name(("models", name, "parts", strange[0]))
            raise invalid(f"{path}: no recipe has such a part; there are: {', '.join(sorted(_PARTS))}", path)
        known_recipe = DESCRIPTORS.get(recipe_of(name))
        descriptors = [known_recipe] if known_recipe else list(DESCRIPTORS.values())
        found = [
            list(section_problems(each, section, settings, settings.defaults.get(each.recipe, _NO_DEFAULTS)))
            for each in descriptors
        ]
        if all(found):
            _raise_first(("models", name), iter(found[0]))


def _raise_first(section: tuple[str, ...], problems: Iterator[SectionProblem]) -> None:
    for each in problems:
        path = dotted_name((*section, *each.path))
        raise invalid(f"{path}: {each.problem}", path)


def setting_warnings(settings: Settings) -> list[SettingWarning]:
    """Return what an operator should know before a client meets it."""
    return [*_unknown_models(settings), *_missing_programs(settings), *limit_warnings(settings)]


def _unknown_models(settings: Settings) -> list[SettingWarning]:
    """Return the names that mean no model. They may be right, because models can be registered later."""
    if not (settings.models or settings.groups or settings.pin or settings.load):
        return []
    index = _known_models(settings)
    unknown = ModelConfiguration(settings).unknown(index.find)
    return [SettingWarning(each.setting, index.not_found(each.name).message) for each in unknown]


def _missing_programs(settings: Settings) -> Iterator[SettingWarning]:
    """Yield the backends of the settings whose program is not there: it may be installed later."""
    for recipe, descriptor in DESCRIPTORS.items():
        setting = load_options.setting_of(f"{recipe}_backend")
        backend = descriptor.backend(getattr(settings, setting)) if setting else None
        if backend is not None and backend.provision is Provision.USER:
            from supervisor.backends.inventory import INSTALLED, BackendInventory  # noqa: PLC0415 - slow, and seldom needed

            status = BackendInventory(settings).status(recipe, backend, backend.devices, backend.name)
            if status.state != INSTALLED:
                yield SettingWarning(setting, f"{status.message} Models of recipe {recipe} cannot be loaded with it.")


def limit_warnings(settings: Settings) -> list[SettingWarning]:
    """Return the limits of engines that a process like this one, in its control group, cannot enforce, and what it does instead."""
    unlimited = [controller for controller in CONTROLLERS if parent_of_engines(controller) is None]
    found = []
    if settings.memory_limit and MEMORY in unlimited:
        found.append(SettingWarning("memory_limit", MEMORY_WATCHED))
    sections: list[tuple[str, str, RecipeDefaults]] = [
        *(("defaults", recipe, section) for recipe, section in settings.defaults.items()),
        *(("models", name, section) for name, section in settings.models.items()),
    ]
    for kind, name, section in sections:
        texts = {
            "memory_limit": MEMORY_WATCHED if section.memory_limit and MEMORY in unlimited else "",
            "cpus": _whole_processors(section.cpus) if section.cpus and CPU in unlimited else "",
            "nice": NICE_REFUSED if (section.nice or 0) < 0 and not _may_lower_nice(section.nice or 0) else "",
            "user": _user_problem(section.user or ""),
        }
        found += [SettingWarning(dotted_name((kind, name, key)), text) for key, text in texts.items() if text]
    return found


def _whole_processors(cpus: float) -> str:
    return f"{NO_GROUP}; the engine runs on whole processors instead, {math.ceil(cpus)} of them, chosen at random"


def _may_lower_nice(nice: int) -> bool:
    soft, _ = resource.getrlimit(resource.RLIMIT_NICE)
    return os.geteuid() == 0 or soft == resource.RLIM_INFINITY or 20 - soft <= os.nice(0) + nice


def _user_problem(user: str) -> str:
    try:
        check_user(user)
    except LemonbusError as problem:
        return f"the model cannot be loaded: {problem}"
    return ""


def _configured(settings: Settings) -> tuple[dict[str, CatalogueEntry], dict[str, CatalogueEntry]]:
    return configured_entries(settings.models), FileModels(settings.models).entries


def _known_models(settings: Settings) -> NameIndex:
    """Return the models that names may mean. Nothing is written: another user may run this for ``lemonbus config``."""
    extra = ExtraModels(settings.extra_models_dir)
    extra.refresh()
    registered = UserModels(Path(settings.state_dir) / user_models.FILE)
    registered.refresh()
    return NameIndex(
        *(catalogue.built_in(), registered.entries, extra.entries, *_configured(settings)),
        aliases=user_aliases.read_aliases(Path(settings.state_dir) / user_aliases.FILE),
        configured=ModelConfiguration(settings).aliases,
    )
