"""Finds the recipe for a model file, and what the model does, from the file's first bytes and never from its name.

Pure.

The suffix only decides how the bytes are read. Each recipe knows its own files (``identify`` in its folder).
"""

from __future__ import annotations

from typing import Final

from protocol.models.recipes import DEFAULT_RECIPE
from workers.backends.recipe import FileHead, Identity
from workers.backends.registry import RECIPES

HEAD: Final = 256 * 1024
"""How many bytes of a file are read: the header of a safetensors file lists text encoders before the diffusion model."""
SUFFIXES: Final = tuple({suffix: None for recipe in RECIPES for suffix in recipe.identified_suffixes})


def identify(name: str, head: bytes) -> Identity | None:
    """Return what the file with this name and these first bytes is; None if no recipe runs it."""
    file = FileHead(name, head)
    # The default recipe takes every file of its format that no special recipe takes.
    for recipe in sorted(RECIPES, key=lambda each: each.descriptor.recipe == DEFAULT_RECIPE):
        found = recipe.identify(file) if recipe.identify else None
        if found is not None:
            return found
    return None
