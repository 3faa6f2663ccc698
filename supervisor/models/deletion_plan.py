"""Which files a deletion removes: those that no other model uses. It only looks at the disk; a job removes them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from protocol.messages.model_files import CheckpointSource, StartRemoval
from protocol.models.checkpoints import HubCheckpoint, TagCheckpoint, hub_cache, parse
from supervisor.models import files
from supervisor.models.catalogues.catalogue import CatalogueEntry


class DeletionPlan(NamedTuple):
    """What is to be removed, and which models use the other files."""

    order: StartRemoval
    kept_for: list[str]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.order.files or self.order.repositories or self.order.tag)


def plan_deletion(entry: CatalogueEntry, others: list[CatalogueEntry], cache_dir: str, busy: set[str]) -> DeletionPlan:
    """Return the files that only this entry uses. ``busy``: folders of repositories with a download in progress."""
    own = files.owned_files(entry, cache_dir)
    used = {
        other.name: found
        for other in _sharing_source(entry, others)
        if _uses_parts(other, cache_dir, busy) and (found := files.owned_files(other, cache_dir))
    }
    used |= {other.name: {_real(path) for path in files.files_at_path(other)} for other in others if other.path}
    kept = {name for name, found in used.items() if found & own or found & {_real(path) for path in own}}
    needed = {path for name in kept for path in used[name]}
    removed = sorted(str(path) for path in own if path not in needed and _real(path) not in needed)
    parsed = [parse(checkpoint) for checkpoint in _checkpoints(entry)]
    repositories = {str(hub_cache() / folder) for folder in hub_folders(entry.sources)}
    # Path's own is_dir raises without permission.
    repositories = {path for path in repositories if os.path.isdir(path) and Path(path).name not in busy}  # noqa: PTH112
    tags = [f"{each.scheme}:{each.tag}" for each in parsed if isinstance(each, TagCheckpoint)]
    tag = tags[0] if tags and removed else ""
    return DeletionPlan(StartRemoval(entry.name, removed, sorted(repositories), tag), sorted(kept))


def _uses_parts(entry: CatalogueEntry, cache_dir: str, busy: set[str]) -> bool:
    """Return whether an entry is on this machine, or being downloaded. If it has parts, these alone may be those of other models."""
    sources = [source for source in entry.sources if source.parts]
    here = any(files.main_files(source, cache_dir) for source in sources)
    return not sources or here or not busy.isdisjoint(hub_folders(sources))


def hub_folders(sources: Iterable[CheckpointSource]) -> set[str]:
    """Return the folders of the hub's cache that files of these sources and their parts are in."""
    parsed = [parse(each.checkpoint) for source in sources for each in source.with_parts()]
    return {checkpoint.folder for checkpoint in parsed if isinstance(checkpoint, HubCheckpoint)}


def _checkpoints(entry: CatalogueEntry) -> list[str]:
    return [each.checkpoint for source in entry.sources for each in source.with_parts()]


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises for a link to itself


def _sharing_source(entry: CatalogueEntry, others: list[CatalogueEntry]) -> list[CatalogueEntry]:
    """Return the entries that may share files: those of the same repository or checkpoint."""
    repositories = {_repository(checkpoint) for checkpoint in _checkpoints(entry)}
    return [
        other for other in others if any(_repository(checkpoint) in repositories for checkpoint in _checkpoints(other))
    ]


def _repository(checkpoint: str) -> str:
    parsed = parse(checkpoint)
    return parsed.repo if isinstance(parsed, HubCheckpoint) else checkpoint


def partial_files(repository: Path) -> list[Path]:
    """Return the incomplete downloads that the cache has of a repository."""
    try:
        return [path for path in (repository / "blobs").iterdir() if path.name.endswith(".incomplete")]
    except OSError:
        return []
