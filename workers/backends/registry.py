"""The registry of recipes: one line a recipe. The folder of a recipe describes it.

The supervisor, the terminal and the documents read the descriptors. A worker uses the backend class, the supervisor
only its ``check``. Importing this module loads no engine library, no socket and no process module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from protocol.failures import Code, Failure
from protocol.models.recipes import DEFAULT_RECIPE, RecipeDescriptor
from workers.backends import user_arguments
from workers.backends.base import Backend
from workers.backends.command import backend as command
from workers.backends.flag_table import FlagTable
from workers.backends.flm import backend as flm
from workers.backends.kokoro import backend as kokoro
from workers.backends.llamacpp import backend as llamacpp
from workers.backends.oga import backend as oga
from workers.backends.recipe import FileHead, Identity, Recipe
from workers.backends.remote import backend as remote
from workers.backends.sdcpp import backend as sdcpp
from workers.backends.whispercpp import backend as whispercpp

RECIPES: Final = [
    llamacpp.RECIPE,
    whispercpp.RECIPE,
    sdcpp.RECIPE,
    flm.RECIPE,
    kokoro.RECIPE,
    *oga.RECIPES,
    command.RECIPE,
    remote.RECIPE,
]

DESCRIPTORS: Final[dict[str, RecipeDescriptor]] = {each.descriptor.recipe: each.descriptor for each in RECIPES}
"""Recipe → its descriptor."""

BACKEND_CLASSES: Final[dict[str, type[Backend]]] = {each.descriptor.recipe: each.backend_class for each in RECIPES}
"""Recipe → the class that runs its models."""

FLAGS: Final[dict[str, FlagTable]] = {each.descriptor.recipe: each.flags for each in RECIPES}
"""Recipe → the flags of its engine."""
HEAD_BYTES: Final = 256 * 1024
"""How many bytes of a file are read: the header of a safetensors file lists text encoders before the diffusion model."""
MODEL_SUFFIXES: Final = tuple({suffix: None for recipe in RECIPES for suffix in recipe.identified_suffixes})


def _argument_check(recipe: Recipe, option: str) -> Callable[[str], list[str]]:
    own = recipe.check_arguments
    return own or partial(user_arguments.check_arguments, option, recipe.flags)


ARGUMENT_CHECKS: Final[dict[str, Callable[[str], list[str]]]] = {
    option.name: _argument_check(recipe, option.name)
    for recipe in RECIPES
    for option in recipe.descriptor.options
    if option.kind == "args"
}
"""Option of kind ``args`` → the function that splits it into words, and raises for a flag that lemonbus sets."""


def backend_class(recipe: str) -> type[Backend]:
    """Return the class that runs models of a recipe; raises an ``unsupported_operation`` failure."""
    found = BACKEND_CLASSES.get(recipe)
    if found is None:
        known = ", ".join(BACKEND_CLASSES)
        raise Failure(Code.UNSUPPORTED, f"recipe {recipe!r} cannot be run here; there are: {known}").raised()
    return found


def identify(name: str, head: bytes) -> Identity | None:
    """Return what the file with this name and these first bytes is; None if no recipe runs it. Pure.

    The name is never trusted: its suffix only decides how the bytes are read.
    """
    file = FileHead(name, head)
    # The default recipe takes every file of its format that no special recipe takes.
    for recipe in sorted(RECIPES, key=lambda each: each.descriptor.recipe == DEFAULT_RECIPE):
        found = recipe.identify(file) if recipe.identify else None
        if found is not None:
            return found
    return None


def identify_parts(recipe: str, main: str, heads: Mapping[str, bytes]) -> dict[str, str]:
    """Return part → file if all files of a folder are one model of this recipe and different parts of it, else nothing. Pure.

    ``main``: the model's own file; ``heads``: file → its first bytes.
    """
    found = next(each for each in RECIPES if each.descriptor.recipe == recipe)
    files = {name: FileHead(name, head) for name, head in heads.items()}
    others = [name for name in files if name != main]
    if found.identify_part is None or not others:
        return {}
    parts = {found.identify_part(files[name]): name for name in others}
    fitting = "" not in parts and len(parts) == len(others) and found.may_have(files[main], set(parts))
    return parts if fitting else {}
