"""What the configuration's sections say for the recipe of a model: options, arguments, variables, devices. Pure.

These are the operator's own words. Unlike a client's, arguments may contain every flag that lemonbus does not set
itself, and name any file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from protocol.config.model_sections import dotted_name
from protocol.config.model_settings import RecipeDefaults
from protocol.config.settings import Settings
from protocol.failures import LemonbusError, invalid
from protocol.models.devices import is_gpu_number
from protocol.models.recipes import RecipeDescriptor
from supervisor.models.options import load_options
from supervisor.models.options.load_options import Options
from workers.backends.registry import BACKEND_CLASSES, DESCRIPTORS

ARGS: Final = "args"
_NO_DEFAULTS: Final = RecipeDefaults()


class SectionProblem(NamedTuple):
    """A setting of a section that the recipe does not accept."""

    path: tuple[str, ...]
    """Its path inside the section: ``("options", "ctx_size")``."""
    problem: str


def section_options(descriptor: RecipeDescriptor, section: RecipeDefaults) -> Options:
    """Return the options of a section that the recipe accepts."""
    return {
        name: value
        for name, value in _given(descriptor, section).items()
        if not _option_problem(descriptor, name, value)
    }


def section_problems(
    descriptor: RecipeDescriptor,
    section: RecipeDefaults,
    settings: Settings | None = None,
    below: RecipeDefaults = _NO_DEFAULTS,
) -> Iterator[SectionProblem]:
    """Return the parts of a section that the recipe does not accept.

    With ``settings``, also what the engine would not accept. ``below``: the section that applies where this one is
    silent.
    """
    own_arguments = _arguments_option(descriptor)
    if section.args is not None and not own_arguments:
        yield SectionProblem((ARGS,), f"recipe {descriptor.recipe} takes no arguments")
    for name, value in _given(descriptor, section).items():
        problem = _option_problem(descriptor, name, value)
        if problem:
            is_args = name == own_arguments and section.args is not None
            yield SectionProblem((ARGS,) if is_args else ("options", name), problem)
    if settings is not None:
        yield from _engine_problem(descriptor, section, settings, below)
    for name in section.env:
        if name.upper().startswith(BACKEND_CLASSES[descriptor.recipe].hidden):
            yield SectionProblem(("env", name), "the engine reads it as an option: use args or options")
    if not descriptor.device_flag and not all(map(is_gpu_number, section.devices or [])):
        yield SectionProblem(("devices",), f"recipe {descriptor.recipe} takes numbers and UUIDs of GPUs only")


def _engine_problem(
    descriptor: RecipeDescriptor, section: RecipeDefaults, settings: Settings, below: RecipeDefaults
) -> Iterator[SectionProblem]:
    given = _given(descriptor, section)
    own_arguments = _arguments_option(descriptor)
    decisive = next((name for name in (own_arguments, f"{descriptor.recipe}_backend") if name in given), "")
    chosen = {**load_options.defaults(descriptor, settings), **_given(descriptor, below), **given}
    if decisive and (problem := load_options.engine_arguments_problem(descriptor, chosen, settings)):
        is_args = decisive == own_arguments and section.args is not None
        yield SectionProblem((ARGS,) if is_args else ("options", decisive), problem)


def check_sections(settings: Settings, recipe_of: Callable[[str], str]) -> None:
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


def _given(descriptor: RecipeDescriptor, section: RecipeDefaults) -> Options:
    """Return the options of a section, with its arguments as the recipe's option for them."""
    own_arguments = _arguments_option(descriptor)
    if section.args is None or not own_arguments:
        return section.options
    return {**section.options, own_arguments: section.args}


def _arguments_option(descriptor: RecipeDescriptor) -> str:
    return next((option.name for option in descriptor.options if option.kind == "args"), "")


def _option_problem(descriptor: RecipeDescriptor, name: str, value: object) -> str:
    try:
        load_options.check_configured(descriptor, name, value)
    except LemonbusError as problem:
        return str(problem)
    return ""
