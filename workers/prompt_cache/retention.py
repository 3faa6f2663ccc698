"""Which kept prompt caches are removed when there are too many, or the disk is full. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from protocol.models.prompt_caches import EntryName


class StoredEntry(NamedTuple):
    """One entry on the disk."""

    name: EntryName
    size: int
    """Bytes."""
    used_at: float
    """When it was saved, or last restored."""


def entries_to_remove(entries: Iterable[StoredEntry], limit: int, shortfall: int = 0) -> list[StoredEntry]:
    """Return the entries to remove: at most ``limit`` bytes stay, and if possible ``shortfall`` bytes are freed.

    An entry always goes if a newer one has the same model and key. Of the others, the least recently used go first.
    """
    newest_first = sorted(entries, key=lambda entry: entry.name.number, reverse=True)
    current: dict[tuple[str, str], StoredEntry] = {}
    superseded = [
        entry for entry in newest_first if current.setdefault((entry.name.model, entry.name.key), entry) is not entry
    ]
    removed, total = superseded, sum(entry.size for entry in current.values())
    freed = sum(entry.size for entry in superseded)
    for entry in sorted(current.values(), key=lambda entry: (entry.used_at, entry.name.number)):
        if total <= limit and freed >= shortfall:
            break
        removed.append(entry)
        total -= entry.size
        freed += entry.size
    return removed
