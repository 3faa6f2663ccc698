"""Load options: whether a recipe accepts them, from a client, the settings or the configuration's sections. Pure.

Sections are the operator's own words. Unlike a client's, arguments there may contain every flag that lemonbus does not
set itself, and name any file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from protocol.config.model_settings import PROCESS_KEYS, RecipeDefaults
from protocol.config.settings import Settings
from protocol.failures import LemonbusError, invalid, printable
from protocol.models import checkpoints
from protocol.models.devices import is_gpu_number
from protocol.models.recipes import AUTOMATIC, LoadOption, ModelSpec, OptionValue, RecipeDescriptor
from workers.backends.registry import ARGUMENT_CHECKS, BACKEND_CLASSES, FLAGS
from workers.backends.user_arguments import check_argument_numbers, check_client_arguments

ARGS: Final = "args"
MERGED_ARGS: Final = "merge_args"
"""Added to the options that a load asked for: the engine arguments among them come after those of the configuration."""
WITHOUT_SAVED: Final = "without_saved"
"""Added to the options that a load asked for: the names of the saved ones that do not count for it, separated by spaces."""
Options = dict[str, OptionValue]
_NO_DEFAULTS: Final = RecipeDefaults()


def file_directories(settings: Settings) -> list[str]:
    """Return the directories of files that a client may name in an engine's arguments."""
    return [*filter(None, [settings.extra_models_dir]), str(checkpoints.hub_cache()), *settings.engine_file_dirs]


def check(descriptor: RecipeDescriptor, given: Mapping[str, Any], directories: Sequence[str] = ()) -> Options:
    """Return a client's options in the recipe's form; raises ``invalid_request`` naming the wrong one.

    ``directories``: see :func:`file_directories`.
    """
    return {name: check_option(descriptor, name, value, directories) for name, value in given.items()}


def is_chosen(descriptor: RecipeDescriptor, name: str, value: Any) -> bool:
    """Return whether a value chooses something: -1 only does for an option whose number may be automatic."""
    option = descriptor.option(name)
    return bool(value != -1 or (option is not None and option.automatic))


def check_option(
    descriptor: RecipeDescriptor, name: str, value: Any, directories: Sequence[str] | None = None
) -> OptionValue:
    """Return an option in the recipe's form. Without ``directories`` it is an administrator's, else a client's."""
    option = descriptor.option(name)
    if option is None:
        known = ", ".join(option.name for option in descriptor.options)
        what = f"there are: {known}" if known else "it has none: the section of its model in the configuration says all"
        raise invalid(f"{printable(name)} is not an option of recipe {descriptor.recipe}; {what}", printable(name))
    if option.kind == "bool":
        return _switch(option, value)
    if option.kind in ("int", "number"):
        return _number(option, value)
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string, not {_in_words(value)}", name)
    if option.kind == "args":
        words, flags = ARGUMENT_CHECKS[name](value), FLAGS[descriptor.recipe]
        check_argument_numbers(name, flags, words)
        if directories is not None:
            check_client_arguments(name, flags, words, directories)
    elif option.choices and value not in (*option.choices, "default"):
        raise invalid(f"{name} must be one of {', '.join(option.choices)}, not {printable(value)!r}", name)
    return value


def _switch(option: LoadOption, value: Any) -> bool:
    if not isinstance(value, bool):
        raise invalid(f"{option.name} must be true or false, not {_in_words(value)}", option.name)
    return value


def _number(option: LoadOption, value: Any) -> OptionValue:
    if option.automatic and value == AUTOMATIC:
        return -1
    kinds = (int,) if option.kind == "int" else (int, float)
    finite = not isinstance(value, float) or math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, kinds) or not finite:
        what = "a whole number" if option.kind == "int" else "a number"
        what += f' or "{AUTOMATIC}"' if option.automatic else ""
        raise invalid(f"{option.name} must be {what}, not {_in_words(value)}", option.name)
    if (option.least is not None and value < option.least) or (option.most is not None and value > option.most):
        least = f" from {option.least:.15g}" if option.least is not None else ""
        most = f" up to {option.most:.15g}" if option.most is not None else ""
        raise invalid(f"{option.name} must be{least}{most}", option.name)
    return value


def _in_words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return {str: "a string", bool: "a boolean", int: "a number", list: "a list", dict: "an object"}.get(
        type(value), "null"
    )


def defaults(descriptor: RecipeDescriptor, settings: Settings) -> Options:
    """Return the value of each option from the settings or else from the recipe.

    Options without a value are left out.
    """
    found = {each.name: getattr(settings, setting_of(each.name), each.default) for each in descriptor.options}
    return {name: value for name, value in found.items() if value not in (None, "")}


def setting_of(option: str) -> str:
    """Return the setting that is the default of an option, empty if there is none."""
    name = option.replace("-", "")  # A setting's name has no hyphen, unlike `sd-cpp_backend`.
    return name if name in Settings.__struct_fields__ else ""


def engine_arguments_problem(descriptor: RecipeDescriptor, options: Options, settings: Settings) -> str:
    """Return which of the arguments in these options the engine would refuse; empty: none, or its flags are unknown here."""
    arguments = next((option.name for option in descriptor.options if option.kind == "args"), "")
    backend = descriptor.backend(str(options.get(f"{descriptor.recipe}_backend", "")))
    if backend is None or not options.get(arguments):
        return ""
    only = {arguments: options[arguments]}
    spec = ModelSpec(
        name="", checkpoint="", recipe=descriptor.recipe, backend=backend.name, type="", path="", options=only
    )
    try:
        BACKEND_CLASSES[descriptor.recipe](spec, settings).check_arguments()
    except LemonbusError as problem:
        return str(problem)
    return ""


# What the configuration's sections say for a recipe.


class SectionProblem(NamedTuple):
    """A setting of a section that the recipe does not accept."""

    path: tuple[str, ...]
    """Its path inside the section: ``("options", "ctx_size")``."""
    problem: str


def section_options(descriptor: RecipeDescriptor, section: RecipeDefaults) -> Options:
    """Return the options of a section that the recipe accepts."""
    return {
        name: check_option(descriptor, name, value)
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
    for key in PROCESS_KEYS if descriptor.elsewhere else ():
        if getattr(section, key) != getattr(_NO_DEFAULTS, key):
            yield SectionProblem((key,), "has no effect on models of other servers, which have no process here")
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
    chosen = {**defaults(descriptor, settings), **_given(descriptor, below), **given}
    if decisive and (problem := engine_arguments_problem(descriptor, chosen, settings)):
        is_args = decisive == own_arguments and section.args is not None
        yield SectionProblem((ARGS,) if is_args else ("options", decisive), problem)


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
        check_option(descriptor, name, value)
    except LemonbusError as problem:
        return str(problem)
    return ""
