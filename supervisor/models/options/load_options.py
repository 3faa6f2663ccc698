"""Load options: checked against the recipe's descriptor, and those that were saved for a model.

Request > ``recipe_options.json`` > settings. A wrong option in a request is the caller's error. A wrong option in the
file is reported and left out, so that a typing error costs one option, not the server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from protocol.config.settings import Settings
from protocol.failures import Code, Failure, LemonbusError, invalid
from protocol.models import checkpoints
from protocol.models.checkpoints import printable
from protocol.models.recipes import LoadOption, ModelSpec, OptionValue, RecipeDescriptor
from supervisor.models.state_files import FinishWrite, StateFile, finish_write
from workers.backends.arguments import check_argument_numbers, check_client_arguments
from workers.backends.registry import ARGUMENT_CHECKS, BACKEND_CLASSES, DESCRIPTORS, FLAGS

FILE: Final = "recipe_options.json"
MERGED_ARGS: Final = "merge_args"
"""Added to the options that a load asked for: the engine arguments among them come after those of the configuration."""
Options = dict[str, OptionValue]


def file_directories(settings: Settings) -> list[str]:
    """Return the directories of files that a client may name in an engine's arguments."""
    return [*filter(None, [settings.extra_models_dir]), str(checkpoints.hub_cache()), *settings.engine_file_dirs]


def check(descriptor: RecipeDescriptor, given: Mapping[str, Any], directories: Sequence[str] = ()) -> Options:
    """Return a client's options in the recipe's form; raises ``invalid_request`` naming the wrong one.

    ``directories``: see :func:`file_directories`.
    """
    return {name: _checked(descriptor, name, value, directories) for name, value in given.items()}


def check_configured(descriptor: RecipeDescriptor, name: str, value: Any) -> OptionValue:
    """Return an option from the operator's configuration in the recipe's form; raises ``invalid_request``."""
    return _checked(descriptor, name, value)


def _checked(
    descriptor: RecipeDescriptor, name: str, value: Any, directories: Sequence[str] | None = None
) -> OptionValue:
    """Return an option in the recipe's form. Without ``directories`` it is an administrator's, else a client's."""
    option = descriptor.option(name)
    if option is None:
        known = ", ".join(option.name for option in descriptor.options)
        raise invalid(
            f"{printable(name)} is not an option of recipe {descriptor.recipe}; there are: {known}", printable(name)
        )
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
    kinds = (int,) if option.kind == "int" else (int, float)
    finite = not isinstance(value, float) or math.isfinite(value)
    if isinstance(value, bool) or not isinstance(value, kinds) or not finite:
        what = "a whole number" if option.kind == "int" else "a number"
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


def check_settings(settings: Settings) -> None:
    """Raise ``invalid_request`` for the first setting that a recipe would not accept as its option."""
    for descriptor in DESCRIPTORS.values():
        for name, value in defaults(descriptor, settings).items():
            try:
                _checked(descriptor, name, value)
            except LemonbusError as problem:
                setting = name.replace("-", "")
                raise invalid(str(problem).replace(name, setting), setting) from problem
        if problem_of_engine := engine_arguments_problem(descriptor, defaults(descriptor, settings), settings):
            raise invalid(problem_of_engine, f"{descriptor.recipe}_args")


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


class ModelOptions:
    """``recipe_options.json``: the saved options, by the registered name of their model."""

    def __init__(
        self,
        path: Path,
        descriptor_of: Callable[[str], RecipeDescriptor],
        directories: Sequence[str] = (),
        finish: FinishWrite = finish_write,
    ) -> None:
        """Nothing is read yet. ``descriptor_of``: registered name → its recipe's descriptor, or a failure.

        ``directories``: see :func:`file_directories`. What is saved came from clients, so their rules apply to it as
        well.
        """
        self._file = StateFile(path, finish)
        self._directories = directories
        self._descriptor_of = descriptor_of
        self._items: dict[str, Any] = {}
        self.problems: list[str] = self._file.problems
        """Errors in the file. The reader of this list empties it."""

    def refresh(self) -> None:
        """Read the file if it was changed. A broken one is moved aside."""
        if not self._file.changed():
            return
        try:
            self._items = self._file.read()
        except ValueError as problem:
            self._items = {}
            self.problems.append(f"{problem}; {self._file.move_aside()}")
        except OSError as problem:
            self.problems.append(f"{FILE} cannot be read: {problem.strerror}")
        for name, item in self._items.items():
            if not isinstance(item, dict):
                self.problems.append(f"{FILE}: {printable(name)}: expected an object")

    def check(self, model: str, given: Mapping[str, Any]) -> Options:
        """Return a request's options in the recipe's form; raises ``invalid_request``."""
        return check(self._descriptor_of(model), given, self._directories)

    def of(self, model: str) -> Options:
        """Return what was saved for a model. Options that its recipe does not accept are reported and left out."""
        self.refresh()
        descriptor = self._descriptor_of(model)
        item = self._items.get(model)
        good: Options = {}
        for name, value in item.items() if isinstance(item, dict) else ():
            try:
                good[name] = _checked(descriptor, name, value, self._directories)
            except LemonbusError as problem:
                self.problems.append(f"{FILE}: {printable(model)}: {problem}")
        return good

    def saved(self) -> dict[str, Options]:
        """Return what was saved for each model, if it may be options; nothing is reported."""
        self.refresh()
        return {
            model: {name: value for name, value in item.items() if isinstance(value, int | float | str)}
            for model, item in self._items.items()
            if isinstance(item, dict)
        }

    def save(self, model: str, given: Mapping[str, Any]) -> None:
        """Replace what is saved for a model by a request's options. Without options, remove it.

        Raises ``invalid_request``, and ``internal_error`` if the file cannot be written.
        """
        good = self.check(model, given)
        self.refresh()
        items = {name: item for name, item in self._items.items() if name != model}
        if good:
            items[model] = good
        self._write(model, items)

    def drop(self, model: str) -> None:
        """Remove what is saved for a model that is being deleted; raises like :meth:`save`."""
        self.refresh()
        if model in self._items:
            self._write(model, {name: item for name, item in self._items.items() if name != model})

    def _write(self, model: str, items: dict[str, Any]) -> None:
        try:
            self._file.replace(items)
        except OSError as problem:
            reason = f"the options could not be saved: {problem.strerror}"
            raise Failure(
                Code.INTERNAL, reason, model=model, detail=f"{self._file.path}: {problem.strerror}"
            ).raised() from problem
        self._items = items
