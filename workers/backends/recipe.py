"""A recipe as the registry lists it: its descriptor, its backend class, and the decisions that only it can make."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final, NamedTuple

from protocol.models.recipes import RecipeDescriptor
from workers.backends.base import Backend
from workers.backends.flag_table import FlagTable
from workers.files import gguf, safetensors

_GGUF_HEAD_BYTES: Final = 64 * 1024
"""Keys come before a vocabulary of megabytes, which need not be read."""


class Identity(NamedTuple):
    """What a file is."""

    recipe: str
    """Empty for a part of a model: a vision projector."""
    labels: tuple[str, ...] = ()


class FileHead:
    """The first bytes of a file, parsed according to the suffix of its name. Each parser runs at most once."""

    def __init__(self, name: str, data: bytes) -> None:
        """Parse nothing yet."""
        self.name = name.lower()
        self.data = data

    @cached_property
    def gguf(self) -> gguf.PartialHeader | None:
        """The beginning of a GGUF file; None for other files."""
        return gguf.read_partial(self.data[:_GGUF_HEAD_BYTES]) if self.name.endswith(".gguf") else None

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Names of tensors of a GGUF or safetensors file, up to the end of the bytes."""
        if self.gguf:
            return self.gguf.tensors
        return tuple(safetensors.tensor_names(self.data)) if self.name.endswith(".safetensors") else ()


class Recipe(NamedTuple):
    """A recipe as its folder exports it."""

    descriptor: RecipeDescriptor
    backend_class: type[Backend]
    flags: FlagTable = FlagTable()
    """The flags of its engine; empty: users give it no arguments."""
    check_arguments: Callable[[str], list[str]] | None = None
    """Splits the option of kind ``args`` into words; raises for a flag that lemonbus sets. None: :attr:`flags` decide."""
    identify: Callable[[FileHead], Identity | None] | None = None
    """Returns what a model file is, or None if the recipe does not run it."""
    identified_suffixes: tuple[str, ...] = ()
    """Suffixes of the files that :attr:`identify` knows."""
    identify_part: Callable[[FileHead], str] | None = None
    """Returns which part of one of its models a file is, empty if it is none. None: its models have no parts."""
    may_have: Callable[[FileHead, set[str]], bool] = lambda _main, _parts: True
    """Returns whether a model file may have these parts."""
