"""The files of this machine that an entry means, if they are there: read from the disk at every call."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from protocol import small_files
from protocol.failures import DECODE_ERRORS, Code, Failure
from protocol.messages.model_files import CheckpointSource, ModelFile
from protocol.models import checkpoints, repository_files
from protocol.models.checkpoints import HubCheckpoint, PackagesCheckpoint, TagCheckpoint
from protocol.models.repository_files import GENAI_CONFIG
from protocol.models.stored_files import checkpoint_files, files_of_packages, snapshots, walk
from supervisor.models.catalogues.catalogue import CatalogueEntry


class ModelFiles(NamedTuple):
    """The files of a model that is present. ``size``: bytes of all of them together; ``modified``: Unix seconds."""

    path: str
    mmproj: str
    size: int
    modified: int
    parts: Mapping[str, str] = {}
    """Part of the model → its file."""

    @property
    def paths(self) -> list[str]:
        """The model's file or folder, its projector and its parts."""
        return [path for path in (self.path, self.mmproj, *self.parts.values()) if path]


def locate(entry: CatalogueEntry, cache_dir: str) -> ModelFiles | None:
    """Return the files of an entry, or None if one of them is missing."""
    if entry.path:
        return _in_extra_directory(entry)
    if entry.configured:
        return ModelFiles("", "", 0, entry.registered)
    return next((files for source in entry.sources if (files := _of_source(source, cache_dir))), None)


def locate_for_use(entry: CatalogueEntry, cache_dir: str) -> ModelFiles | None:
    """Return the files of an entry for a request, or None if they must be fetched.

    Raises ``model_unusable`` for a model with a path that is incomplete, because no source has its files.
    """
    found = locate(entry, cache_dir)
    if found is None and entry.path:
        reason, path = _broken_file(entry)
        raise Failure(
            Code.MODEL_UNUSABLE, f"{entry.name} cannot be loaded: {reason}", model=entry.name, detail=path
        ).raised()
    return found


def expected_files(entry: CatalogueEntry) -> ModelFiles:
    """Return what is known about files before their download: the tag of a model that its recipe's program will store, and no paths."""
    parsed = (checkpoints.parse(source.checkpoint) for source in entry.sources)
    return ModelFiles(next((one.tag for one in parsed if isinstance(one, TagCheckpoint)), ""), "", 0, 0)


def _in_extra_directory(entry: CatalogueEntry) -> ModelFiles | None:
    found = _with_size(main_paths(entry.path), entry.mmproj)
    return _with_parts(found, {part: _with_size([path], "") for part, path in entry.parts.items()})


def _with_parts(found: ModelFiles | None, parts: Mapping[str, ModelFiles | None]) -> ModelFiles | None:
    """Return the files of a model with its parts, None if one of them is missing."""
    if not parts or found is None:
        return found
    here = {part: file for part, file in parts.items() if file is not None}
    if len(here) < len(parts):
        return None
    return found._replace(
        size=found.size + sum(file.size for file in here.values()),
        modified=max(found.modified, *(file.modified for file in here.values())),
        parts={part: file.path for part, file in here.items()},
    )


def main_paths(path: str) -> list[str]:
    """Return a model's files in the extra models directory, given the first one (the last one of an ONNX folder).

    A folder of GGUF files is not listed: it may have thousands, and this is called for each.
    """
    name = path.rpartition("/")[2]
    folder = path.removesuffix(name)
    if name == GENAI_CONFIG:
        return [*(folder + each for each in walk(Path(folder)) if each != GENAI_CONFIG), path]
    return [folder + each for each in repository_files.shards(name)]


def _broken_file(entry: CatalogueEntry) -> tuple[str, str]:
    """Return what is wrong with the files of a model with a path, and the path of the first one that is wrong."""
    files_of = {"file": main_paths(entry.path), **{part: [path] for part, path in entry.parts.items()}}
    empty, first = "file", entry.path
    for part, paths in files_of.items():
        try:
            if not sum(os.stat(path).st_size for path in paths):  # noqa: PTH116
                empty, first = part, paths[0]
        except FileNotFoundError as problem:
            return f"its {part} {Path(problem.filename).name} is missing; put it back", problem.filename
        except OSError as problem:
            return f"its {part} cannot be read ({problem.strerror}); replace it by a complete one", problem.filename
    return f"its {empty} is empty; replace it by a complete one", first


def _of_source(source: CheckpointSource, cache_dir: str) -> ModelFiles | None:
    found = _of_checkpoint(source, cache_dir)
    if found is None or not source.parts:
        return found
    return _with_parts(found, {part: _of_checkpoint(each, cache_dir) for part, each in source.parts.items()})


def _of_checkpoint(source: CheckpointSource, cache_dir: str) -> ModelFiles | None:
    parsed = checkpoints.parse(source.checkpoint)
    if isinstance(parsed, TagCheckpoint):
        return _located_by_tag(parsed, cache_dir)
    if not isinstance(parsed, HubCheckpoint):
        file = parsed.file(cache_dir)
        if isinstance(parsed, PackagesCheckpoint) and file.is_file():
            return _with_size([file, *sorted(files_of_packages(file) - {file})], "")
        return _with_size([file], file.parent)
    if not os.path.isdir(f"{checkpoints.hub_cache()}/{parsed.folder}"):  # noqa: PTH112
        return None  # the usual case; a list asks for every model of the catalogue
    for snapshot in snapshots(checkpoints.hub_cache() / parsed.folder):
        names = list(walk(snapshot))
        chosen = repository_files.choose_files(names, parsed.variant)
        projector = repository_files.projector(names, source.mmproj)
        if chosen and (projector or not source.mmproj):
            files = _with_size([snapshot / name for name in chosen], snapshot / projector)
            if files:
                return files
    return None


def cached_repositories() -> frozenset[str]:
    """Return the names of all folders in the hub's cache."""
    try:
        return frozenset(os.listdir(checkpoints.hub_cache()))  # noqa: PTH208 - names, not paths
    except OSError:
        return frozenset()


def hub_folders(entry: CatalogueEntry) -> frozenset[str]:
    """Return the folders of the hub's cache without which no file of an entry exists; none if it has other sources."""
    parsed = [checkpoints.parse(source.checkpoint) for source in entry.sources]
    folders = frozenset(one.folder for one in parsed if isinstance(one, HubCheckpoint))
    return folders if all(isinstance(one, HubCheckpoint) for one in parsed) else frozenset()


def owned_files(entry: CatalogueEntry, cache_dir: str) -> set[Path]:
    """Return every file that belongs to an entry, in all snapshots and of all its sources, complete or not."""
    found: set[Path] = set()
    for source in entry.sources:
        found |= main_files(source, cache_dir)
        for part in source.parts.values():
            found |= main_files(part, cache_dir)
    return found


def main_files(source: CheckpointSource, cache_dir: str) -> set[Path]:
    """Return every file of a source without its parts, in all snapshots."""
    return checkpoint_files(source.checkpoint, source.mmproj, cache_dir)


def files_at_path(entry: CatalogueEntry) -> list[Path]:
    """Return all files of an entry that has a path: its shards or its folder, its projector and its parts."""
    return [Path(path) for path in (*main_paths(entry.path), entry.mmproj, *entry.parts.values()) if path]


def all_files(entry: CatalogueEntry, cache_dir: str) -> list[ModelFile]:
    """Return every file of an entry that is on this machine, wherever its files are."""
    if entry.path:
        named = {Path(path): part for part, path in entry.parts.items()}
        return [found for path in files_at_path(entry) for found in sized([path], named.get(path, ""))]
    parts = {
        path: part
        for source in entry.sources
        for part, each in source.parts.items()
        for path in main_files(each, cache_dir)
    }
    return [found for path in sorted(owned_files(entry, cache_dir)) for found in sized([path], parts.get(path, ""))]


def sized(paths: Iterable[Path], part: str = "") -> list[ModelFile]:
    """Return files with their sizes, without those that are gone. The size of a link is that of its target."""
    found = []
    for path in paths:
        with suppress(OSError):
            found.append(ModelFile(str(path), path.stat().st_size, part))
    return found


def _located_by_tag(parsed: TagCheckpoint, cache_dir: str) -> ModelFiles | None:
    """Return the record of a model that its recipe's own program keeps: it is loaded by its tag."""
    mark = parsed.mark(cache_dir)
    try:
        facts = mark.stat()
        noted = msgspec.json.decode(small_files.read_small_file(mark), type=dict[str, Any])
    except (OSError, *DECODE_ERRORS):
        return None
    size = noted.get("size", 0)
    return ModelFiles(parsed.tag, "", size if isinstance(size, int) else 0, int(facts.st_mtime))


def _with_size(paths: Sequence[str | Path], mmproj: str | Path) -> ModelFiles | None:
    """Return the files with their size. Without a projector, ``mmproj`` is a folder, or nothing."""
    size = modified = 0
    try:
        for path in paths:
            facts = os.stat(path)  # noqa: PTH116 - no pathlib where a listing asks for thousands
            size += facts.st_size
            modified = max(modified, int(facts.st_mtime))
        has_projector = bool(mmproj) and Path(mmproj).is_file()
        size += Path(mmproj).stat().st_size if has_projector else 0
    except OSError:
        return None
    if not size:
        return None
    last = Path(paths[-1]) if str(paths[-1]).endswith(GENAI_CONFIG) else None
    path = last.parent if last and last.name == GENAI_CONFIG else paths[0]
    return ModelFiles(str(path), str(mmproj) if has_projector else "", size, modified)
