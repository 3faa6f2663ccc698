"""Which entry a name means. Pure.

In this order: the registered name itself, an alias, the checkpoint of an entry (built-in ones first); then the
same for the name before ``:latest``.  An alias may be written with ``-`` for ``:``.  What is unknown is a ``model_not_found`` failure that tells the most similar names.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from protocol.failures import Code, Failure
from protocol.models.checkpoints import printable
from supervisor.models.catalogue import MAX_NAME_LENGTH, CatalogueEntry

LATEST: Final = ":latest"
_MAX_MATCHES: Final = 3


def find(
    name: str, entries: Mapping[str, CatalogueEntry], by_checkpoint: Mapping[str, CatalogueEntry]
) -> CatalogueEntry | None:
    """Return the entry that a name means, or None."""
    for meant in (name, name.removesuffix(LATEST)):
        found = entries.get(meant) or by_checkpoint.get(meant.removeprefix("hf:"))
        if found:
            return found
    return None


def checkpoints_of(entries: Mapping[str, CatalogueEntry]) -> dict[str, CatalogueEntry]:
    """Return the entries by their aliases and by each of their checkpoints; the first entry keeps a word."""
    found: dict[str, CatalogueEntry] = {}
    for entry in entries.values():
        for alias in entry.aliases:
            found.setdefault(alias, entry)
            found.setdefault(alias.replace(":", "-"), entry)
    for entry in entries.values():
        for checkpoint in (entry.checkpoint, *(source.checkpoint for source in entry.sources)):
            if not entry.path:
                found.setdefault(checkpoint.removeprefix("hf:"), entry)
    return found


def similar(name: str, entries: Mapping[str, CatalogueEntry]) -> list[str]:
    """Return the names that somebody who wrote ``name`` may have meant, the best first."""
    if len(name) > MAX_NAME_LENGTH:
        return []
    wanted = _normalized(name)
    bare: dict[str, list[str]] = {}
    for known in entries:
        bare.setdefault(_normalized(known), []).append(known)
    close = difflib.get_close_matches(wanted, bare, n=_MAX_MATCHES, cutoff=0.6)
    close += [key for key in bare if len(wanted) >= 3 and wanted in key and key not in close]
    return [known for key in close for known in bare[key]][:_MAX_MATCHES]


def _normalized(name: str) -> str:
    """Return a name without what people leave out: prefix, ``-GGUF``, ``:latest``, case."""
    lowered = name.lower().removesuffix(LATEST).removesuffix("-gguf")
    return lowered.removeprefix("user.").removeprefix("extra.").rsplit("/", 1)[-1]


def not_found(name: str, entries: Mapping[str, CatalogueEntry]) -> Failure:
    """Return the failure for a name that means nothing."""
    message = f"there is no model {printable(name)!r}"
    close = similar(name, entries)
    if close:
        message += f"; did you mean {' or '.join(close)}?"
    return Failure(Code.MODEL_NOT_FOUND, message, model=printable(name), param="model")
