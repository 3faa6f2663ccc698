"""What an import of another server's models would write into the configuration file, and what it leaves out.

A process of the supervisor's package makes the plan, because it knows the recipes; the command line applies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from protocol.config.toml_lines import KeyPath


class LeftOut(msgspec.Struct, frozen=True, order=True):
    """Something of the other server that is not carried over."""

    model: str
    """The model that it is about, under its name here; empty: all, or the server."""
    what: str
    """What it is, in the words of the other server."""
    why: str


class ImportPlan(msgspec.Struct):
    """Sections and settings of the configuration file, in the form of TOML values."""

    source: str
    """The file or folder that was read."""
    models: dict[str, dict[str, Any]] = {}
    groups: dict[str, dict[str, Any]] = {}
    remotes: dict[str, dict[str, Any]] = {}
    settings: dict[str, Any] = {}
    comments: dict[str, str] = {}
    """Name of a model's section → a line of comment above it."""
    left_out: list[LeftOut] = []

    def leave(self, model: str, what: str, why: str) -> None:
        """Note something that is not carried over, once."""
        note = LeftOut(model, what, why)
        if note not in self.left_out:
            self.left_out.append(note)

    def sections(self) -> Iterator[PlannedSection]:
        """Yield the sections, those of models first."""
        for kind, found in (("models", self.models), ("groups", self.groups), ("remotes", self.remotes)):
            for name, values in found.items():
                yield PlannedSection((kind, name), values)


class PlannedSection(NamedTuple):
    """One section of the plan."""

    path: KeyPath
    values: dict[str, Any]
