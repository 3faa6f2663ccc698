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
from protocol.recipes import Descriptor
from workers.backends import arguments, flm, llamacpp, oga, sdcpp, whispercpp
from workers.backends.backend import Backend

_KNOWN: Final = [
    llamacpp.DESCRIPTOR,
    whispercpp.DESCRIPTOR,
    sdcpp.DESCRIPTOR,
    flm.DESCRIPTOR,
    *oga.DESCRIPTORS,
]

DESCRIPTORS: Final[dict[str, Descriptor]] = {descriptor.recipe: descriptor for descriptor in _KNOWN}
"""Recipe → its descriptor."""

CLASSES: Final[dict[str, type[Backend]]] = {
    llamacpp.DESCRIPTOR.recipe: llamacpp.LlamaCpp,
    sdcpp.DESCRIPTOR.recipe: sdcpp.SdCpp,
    flm.DESCRIPTOR.recipe: flm.Flm,
    whispercpp.DESCRIPTOR.recipe: whispercpp.WhisperCpp,
    **oga.CLASSES,
}
"""Recipe → what runs it, for those that can be run."""

ARGUMENTS: Final[dict[str, Callable[[str], list[str]]]] = {
    option.name: partial(arguments.check, option.name, descriptor.forbidden_flags)
    for descriptor in _KNOWN
    for option in descriptor.options
    if option.kind == "args"
} | {"llamacpp_args": arguments.check_args, flm.OPTION: flm.check_args}
"""Option of kind ``args`` → what splits it into words, and raises for a flag that is ours to set."""


def backend_class(recipe: str) -> type[Backend]:
    """Return the class that runs models of a recipe; raises an ``unsupported_operation`` failure."""
    found = CLASSES.get(recipe)
    if found is None:
        what = "is known, but this release cannot run it yet" if recipe in DESCRIPTORS else "cannot be run here"
        raise Failure(Code.UNSUPPORTED, f"recipe {recipe!r} {what}; there are: {', '.join(CLASSES)}").raised()
    return found
