"""The registry of recipes: what can be run here. One file a recipe: a descriptor and a class.

The supervisor, the terminal and the documents read the descriptors; a worker makes use of the class, the
supervisor only of its ``check``.
Importing this package loads no engine library, no socket and no process module.
"""

from __future__ import annotations

from typing import Final

from protocol.failures import Code, Failure
from protocol.recipes import Descriptor
from workers.backends import llamacpp
from workers.backends.backend import Backend

DESCRIPTORS: Final[dict[str, Descriptor]] = {llamacpp.DESCRIPTOR.recipe: llamacpp.DESCRIPTOR}
"""Recipe → its descriptor."""

_CLASSES: Final[dict[str, type[Backend]]] = {llamacpp.DESCRIPTOR.recipe: llamacpp.LlamaCpp}


def backend_class(recipe: str) -> type[Backend]:
    """Return the class that runs models of a recipe; raises an ``unsupported_operation`` failure."""
    found = _CLASSES.get(recipe)
    if found is None:
        raise Failure(
            Code.UNSUPPORTED, f"recipe {recipe!r} cannot be run here; there are: {', '.join(_CLASSES)}"
        ).raised()
    return found
