"""Finds what takes space, and decides whether something uses it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from protocol import small_files
from protocol.batches.batch_store import BatchStore
from protocol.batches.file_store import FileStore
from protocol.config.settings import Settings
from protocol.failures import DECODE_ERRORS, LemonbusError
from protocol.messages.disk_usage import DiskItemKind, StartDiskJob, StoredModel
from protocol.models import checkpoints, installations, prompt_caches, repository_files
from protocol.models.checkpoints import HubCheckpoint, PackagesCheckpoint, WheelCheckpoint
from protocol.models.repository_files import GENAI_CONFIG
from protocol.models.stored_files import checkpoint_files, walk
from workers.backends.registry import DESCRIPTORS
from workers.jobs.disk_contents.sizes import DiskFiles, FileId, files_below, files_named, folders, plain_files
from workers.prompt_cache.store import MANIFEST, Manifest

MIN_AGE_S: Final = 60.0
"""What was written later than this may belong to something that has just begun."""
LOCK: Final = ".lock"
STAGING: Final = ".staging"
INCOMPLETE: Final = ".incomplete"
_DRAFT: Final = ".draft-"
_INTERRUPTED: Final = "it is left of a download that was interrupted"
_OF_NO_MODEL: Final = "no model has these files"
_MODEL_GONE: Final = "its model does not exist"
_ASIDE: Final = ("user_models.json.broken-", "adopted_models.json.broken-")
"""Damaged files of the state directory that said which models there are, before the time at which they were moved aside."""


class Finding(NamedTuple):
    """Something that takes space."""

    kind: DiskItemKind
    name: str
    path: Path
    files: DiskFiles
    unused: str = ""
    """Why nothing uses it; empty: something does, or may."""
    lock: Path | None = None
    """The lock of a process that writes it."""
    kept: str = ""
    """Why it stays although nothing uses it."""


def find_all(settings: Settings, order: StartDiskJob) -> list[Finding]:
    """Return everything that the server has on the disk."""
    cache_dir = settings.cache_dir
    found = [
        *_models(order, cache_dir),
        *_downloaded_folders(order, cache_dir),
        *_partial_blobs(order),
        *_engines(order, cache_dir),
        *_prompt_caches(order, cache_dir),
    ]
    state = files_below(*plain_files(Path(settings.state_dir)))
    found.append(Finding(DiskItemKind.STATE, "state", Path(settings.state_dir), state))
    for folder, name in ((FileStore(settings).folder, "files of clients"), (BatchStore(settings).folder, "batches")):
        found.append(Finding(DiskItemKind.STATE, name, folder, files_below(folder)))
    # A file of a model may be in any folder: a model in the extra models directory may be a link.
    of_models = {identity for each in found if each.kind is DiskItemKind.MODEL for identity in each.files.sizes}
    kept = _kept_for(Path(settings.state_dir))
    return [_judged(each, of_models, kept) for each in found if each.files.size]


def _judged(found: Finding, of_models: set[FileId], kept: str) -> Finding:
    if found.kind is DiskItemKind.UNKNOWN and found.files.sizes.keys() & of_models:
        return found._replace(unused="")
    return found._replace(kept=kept) if found.unused in (_OF_NO_MODEL, _MODEL_GONE) else found


def _kept_for(state_dir: Path) -> str:
    """Return why files without a model stay: a damaged file may name their model. Empty: there is none."""
    aside = next((file.name for file in plain_files(state_dir) if file.name.startswith(_ASIDE)), "")
    return f"{aside} in {state_dir} may name its model: restore that file, or remove it" if aside else ""


def _models(order: StartDiskJob, cache_dir: str) -> Iterator[Finding]:
    """Find the files of models. Parts that several models have do not make a model whose own file is missing one that is here."""
    without_main: dict[str, set[Path]] = {}
    claimed: set[Path] = set()
    for model in order.models:
        paths = {path for file in model.files for path in _parts(Path(file))}
        for checkpoint, mmproj in model.checkpoints:
            paths |= checkpoint_files(checkpoint, mmproj, cache_dir)
        parts = {path for part in model.parts for path in checkpoint_files(part, "", cache_dir)}
        if not paths:
            without_main[model.name] = parts
        elif (files := files_named(sorted(paths | parts))).sizes:
            claimed |= parts
            yield Finding(DiskItemKind.MODEL, model.name, min(paths), files)
    for name, parts in without_main.items():
        if (rest := sorted(parts - claimed)) and (files := files_named(rest)).sizes:
            yield Finding(DiskItemKind.MODEL, name, rest[0], files)


def _parts(first: Path) -> Iterator[Path]:
    """Yield the files of a model in the extra models directory, given the first one."""
    if first.name == GENAI_CONFIG:
        yield from (first.parent / name for name in walk(first.parent))
    else:
        yield from (first.with_name(name) for name in repository_files.shards(first.name))


class _Claims(NamedTuple):
    """Folder → whether a download that runs or is paused fills it."""

    packages: dict[str, bool]
    """Folders of ``CACHE_DIR/models``."""
    repositories: dict[str, bool]
    """Folders of the hub's cache."""


def _claims(models: list[StoredModel], downloads: list[str]) -> _Claims:
    claims = _Claims({}, {})
    for model in models:
        for checkpoint in (*(checkpoint for checkpoint, _ in model.checkpoints), *model.parts):
            try:
                parsed = checkpoints.parse(checkpoint)
            except LemonbusError:
                continue
            match parsed:
                case HubCheckpoint():
                    where, folder = claims.repositories, parsed.folder
                case WheelCheckpoint() | PackagesCheckpoint():
                    where, folder = claims.packages, parsed.file("").parent.name
                case _:
                    continue
            where[folder] = where.get(folder, False) or model.name in downloads
    return claims


def _downloaded_folders(order: StartDiskJob, cache_dir: str) -> Iterator[Finding]:
    """Find what is left of downloads from packages, and folders that no model claims."""
    claimed = _claims(order.models, order.downloads).packages
    programs = {descriptor.checkpoint_scheme for descriptor in DESCRIPTORS.values()}
    in_use = {folder for file in order.used_files for folder in Path(os.path.realpath(file)).parents}
    for folder in folders(Path(cache_dir) / "models"):
        if folder.name.startswith("."):
            yield _partial(folder.name, folder, None)
        elif folder.name in claimed:
            staging = folder / STAGING
            if staging in folders(folder):
                yield _partial(folder.name, staging, folder / LOCK, wanted=claimed[folder.name])
        elif (
            folder.name not in programs and Path(os.path.realpath(folder)) not in in_use
        ):  # a program's own models are noted there: their files are elsewhere
            files = files_below(folder)
            yield Finding(
                DiskItemKind.UNKNOWN, folder.name, folder, files, _unless_new(files, _OF_NO_MODEL), folder / LOCK
            )


def _partial_blobs(order: StartDiskJob) -> Iterator[Finding]:
    """Find partial downloads in the hub's cache, in the repositories of our models alone."""
    hub = checkpoints.hub_cache()
    for repository, wanted in sorted(_claims(order.models, order.downloads).repositories.items()):
        blobs = hub / repository / "blobs"
        if hub / repository not in folders(hub) or blobs not in folders(hub / repository):
            continue
        for file in plain_files(blobs):
            if file.name.endswith(INCOMPLETE):
                lock = hub / ".locks" / repository / f"{file.name.removesuffix(INCOMPLETE)}.lock"
                name = repository.removeprefix("models--").replace("--", "/")
                yield _partial(name, file, lock, wanted=wanted)


def _partial(name: str, path: Path, lock: Path | None, *, wanted: bool = False, why: str = _INTERRUPTED) -> Finding:
    files = files_below(path)
    unused = "" if wanted else _unless_new(files, why)
    return Finding(DiskItemKind.PARTIAL, name, path, files, unused, lock)


def _unless_new(files: DiskFiles, why: str) -> str:
    return why if time.time() - files.newest >= MIN_AGE_S else ""


def _engines(order: StartDiskJob, cache_dir: str) -> Iterator[Finding]:
    for recipe in folders(Path(cache_dir) / "backends"):
        for backend in folders(recipe):
            key = f"{recipe.name}/{backend.name}"
            present = folders(backend)
            found = installations.find_installations(cache_dir, recipe.name, backend.name)
            for number, each in enumerate(found):
                if each.folder not in present:
                    continue
                latest = number == 0
                unused = "" if latest or key in order.used_backends else f"{found[0].record.version} replaces it"
                name = f"{recipe.name}:{backend.name} {each.record.version}"
                yield Finding(DiskItemKind.ENGINE, name, each.folder, files_below(each.folder), unused, backend / LOCK)
            why = "it is left of an installation or a removal that was interrupted"
            for path in [*present, *plain_files(backend)]:
                if path.name.startswith(".") and path.name != LOCK:
                    yield _partial(key.replace("/", ":"), path, backend / LOCK, why=why)


def _prompt_caches(order: StartDiskJob, cache_dir: str) -> Iterator[Finding]:
    names = {prompt_caches.model_digest(model.name): model.name for model in order.models}
    for folder in folders(prompt_caches.root(cache_dir)):
        files = files_below(folder)
        if folder.name.startswith(_DRAFT):
            unused = _unless_new(files, "the worker that wrote it has ended")
            yield Finding(DiskItemKind.PARTIAL, "prompt cache", folder, files, unused)
            continue
        entry = prompt_caches.parse_entry_name(folder.name)
        if entry is None:
            continue
        model = names.get(entry.model, "")
        unused = "" if model else _MODEL_GONE
        if model and order.prompt_caches:
            unused = "it only saves time at the next load of its model"
        yield Finding(DiskItemKind.PROMPT_CACHE, model or _saved_name(folder), folder, files, unused)


def _saved_name(folder: Path) -> str:
    try:
        return msgspec.json.decode(small_files.read_small_file(folder / MANIFEST), type=Manifest).model
    except (OSError, *DECODE_ERRORS):
        return folder.name
