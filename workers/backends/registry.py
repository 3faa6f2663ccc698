"""The registry of recipes: what can be run here. One file a recipe: a descriptor, and a class if we can run it.

The supervisor, the terminal and the documents read the descriptors; a worker makes use of the class, the
supervisor only of its ``check``.
Importing this package loads no engine library, no socket and no process module.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from protocol.failures import Code, Failure
from protocol.models.recipes import RecipeDescriptor
from workers.backends import arguments
from workers.backends.base import Backend
from workers.backends.flm import backend as flm
from workers.backends.llamacpp import backend as llamacpp
from workers.backends.oga import backend as oga
from workers.backends.sdcpp import backend as sdcpp
from workers.backends.whispercpp import backend as whispercpp

_ALL: Final = [
    llamacpp.DESCRIPTOR,
    whispercpp.DESCRIPTOR,
    sdcpp.DESCRIPTOR,
    flm.DESCRIPTOR,
    *oga.DESCRIPTORS,
]

DESCRIPTORS: Final[dict[str, RecipeDescriptor]] = {descriptor.recipe: descriptor for descriptor in _ALL}
"""Recipe → its descriptor."""

BACKEND_CLASSES: Final[dict[str, type[Backend]]] = {
    llamacpp.DESCRIPTOR.recipe: llamacpp.LlamaCppBackend,
    sdcpp.DESCRIPTOR.recipe: sdcpp.SdCppBackend,
    flm.DESCRIPTOR.recipe: flm.FlmBackend,
    whispercpp.DESCRIPTOR.recipe: whispercpp.WhisperCppBackend,
    **oga.OGA_CLASSES,
}
"""Recipe → what runs it, for those that can be run."""

ARGUMENT_CHECKS: Final[dict[str, Callable[[str], list[str]]]] = {
    option.name: partial(arguments.check_forbidden_flags, option.name, descriptor.forbidden_flags)
    for descriptor in _ALL
    for option in descriptor.options
    if option.kind == "args"
} | {"llamacpp_args": arguments.check_llamacpp_args, flm.OPTION: flm.check_flm_args}
"""Option of kind ``args`` → what splits it into words, and raises for a flag that is ours to set."""


def backend_class(recipe: str) -> type[Backend]:
    """Return the class that runs models of a recipe; raises an ``unsupported_operation`` failure."""
    found = BACKEND_CLASSES.get(recipe)
    if found is None:
        what = "is known, but this release cannot run it yet" if recipe in DESCRIPTORS else "cannot be run here"
        raise Failure(Code.UNSUPPORTED, f"recipe {recipe!r} {what}; there are: {', '.join(BACKEND_CLASSES)}").raised()
    return found
