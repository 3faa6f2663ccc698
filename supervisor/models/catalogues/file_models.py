"""The models that sections of the configuration make with ``path``: files of this machine, wherever they are.

The first bytes of a file tell what it is, as in the extra models directory. Its name needs no suffix, because other
programs' stores name files by their digests. A file that is missing or unknown is a model of the default recipe, which
says at its load what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from protocol.config.model_settings import ModelSettings
from protocol.models.recipes import DEFAULT_RECIPE
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.catalogues.extra_folders import read_head
from workers.backends.recipe import Identity
from workers.backends.registry import DESCRIPTORS, MODEL_SUFFIXES, identify

_UNKNOWN: Final = Identity(DEFAULT_RECIPE)
_Facts = tuple[int, int]
"""Time of change and size of a file, zeros if it cannot be read."""


class FileModels:
    """The entries of these sections, by name."""

    def __init__(self, sections: Mapping[str, ModelSettings]) -> None:
        """Look at each file once."""
        self._sections = {name: section for name, section in sections.items() if section.path}
        self._facts = {name: _facts(section.path or "") for name, section in self._sections.items()}
        self.entries = {name: _entry(name, section) for name, section in self._sections.items()}

    def refresh(self, name: str = "") -> bool:
        """Look at the file of one model again, or at all; return whether an entry has changed. One ``stat`` call for each."""
        changed = False
        for each in [name] if name else self._sections:
            section = self._sections.get(each)
            if section is None or (facts := _facts(section.path or "")) == self._facts[each]:
                continue
            self._facts[each] = facts
            entry = _entry(each, section)
            changed = changed or entry != self.entries[each]
            self.entries[each] = entry
        return changed


def _entry(name: str, section: ModelSettings) -> CatalogueEntry:
    path, mmproj = section.path or "", section.mmproj or ""
    identity = _identified(path, section.parts)
    labels = [*(["vision"] if mmproj else []), *identity.labels]
    return CatalogueEntry(
        name,
        Path(path).name,
        identity.recipe,
        labels=labels,
        suggested=True,
        path=path,
        mmproj=mmproj,
        parts=section.parts,
        configured=True,
    )


def _identified(path: str, parts: Collection[str]) -> Identity:
    of_parts = next((each for each in DESCRIPTORS.values() if parts and each.parts.keys() >= set(parts)), None)
    if of_parts is not None:
        return Identity(of_parts.recipe, (of_parts.label,))
    head = read_head(path)
    name = Path(path).name
    found = identify(name if name.lower().endswith(MODEL_SUFFIXES) else f"{name}.gguf", head)
    return found if found is not None and found.recipe else _UNKNOWN


def _facts(path: str) -> _Facts:
    try:
        found = os.stat(path)  # noqa: PTH116 - one for each model of a list
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
