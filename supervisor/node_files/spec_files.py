"""The files of the head that an engine of a model reads: what another node must have before it can load the model.

They are looked up on the disk at each call.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from protocol.failures import LemonbusError
from protocol.messages.model_files import CheckpointSource
from protocol.messages.model_transfer import FileRoot, TransferFile
from protocol.models import checkpoints, repository_files
from protocol.models.checkpoints import HubCheckpoint, PackagesCheckpoint, WheelCheckpoint
from protocol.models.node_paths import named_paths
from protocol.models.recipes import ModelSpec
from protocol.models.stored_files import files_of_packages, walk
from supervisor.models.files import main_paths

_ID_LENGTH = 32


class HeadFolders(NamedTuple):
    """The folders of the head that other nodes have as well."""

    hub: Path
    cache: Path

    def place(self, path: Path, base: Path) -> tuple[FileRoot, str]:
        """Return the root of a file and its name below it. ``base``: the folder that the other files of its model may also be in."""
        for root, folder in ((FileRoot.HUB, self.hub), (FileRoot.CACHE, self.cache)):
            if path.is_relative_to(folder):
                return root, str(path.relative_to(folder))
        base = base if path.is_relative_to(base) else path.parent
        return FileRoot.OTHER, f"{hashlib.sha256(os.fsencode(base)).hexdigest()[:16]}/{path.relative_to(base)}"

    def blob(self, path: Path) -> str:
        """Return the name of the blob of the hub's cache that a file is a link to; empty if it is not such a link."""
        if not path.is_symlink() or not path.is_relative_to(self.hub):
            return ""
        target = Path(os.path.realpath(path))
        repository = self.hub / path.relative_to(self.hub).parts[0]
        return target.name if target.parent == Path(os.path.realpath(repository)) / "blobs" else ""


def files_of_spec(spec: ModelSpec) -> list[Path]:
    """Return the files of the head that an engine of this model reads, existing or not."""
    main = Path(spec.path)
    found = [*_of_model(spec, main)] if main.is_absolute() else []
    # Those in arguments may be folders to write to, or programs' own names for something.
    found += [path for path in map(Path, named_paths(spec)) if path != main and path.is_file()]
    found += [Path(path) for path in (spec.mmproj, *spec.parts.values()) if path]
    return list(dict.fromkeys(found))


def _of_model(spec: ModelSpec, main: Path) -> Iterator[Path]:
    if main.is_dir():
        yield from (main / name for name in walk(main))
        return
    yield from map(Path, main_paths(str(main)))
    try:
        parsed = checkpoints.parse(spec.checkpoint)
    except LemonbusError:  # a file that was not downloaded
        return
    if isinstance(parsed, PackagesCheckpoint):
        yield from sorted(files_of_packages(main))
    elif isinstance(parsed, HubCheckpoint) and parsed.variant != "*":
        # A model of speech has its voices beside it.
        snapshots = checkpoints.hub_cache() / parsed.folder / "snapshots"
        if main.is_relative_to(snapshots):
            snapshot = snapshots / main.relative_to(snapshots).parts[0]
            names = repository_files.choose_files(list(walk(snapshot)), parsed.variant)
            yield from (snapshot / name for name in names)


def transfer_files(
    spec: ModelSpec, folders: HeadFolders, key: str, downloads: Iterable[CheckpointSource] = ()
) -> list[TransferFile]:
    """Return the files of a model as another node gets them; raises OSError if one of them is missing.

    ``key``: what the ids of files are made with, so that nothing can guess them. ``downloads``: where the model comes from.
    """
    recorded = _recorded_digests(downloads, folders)
    base, found = Path(spec.path).parent, []
    for path in files_of_spec(spec):
        facts = path.stat()
        root, name = folders.place(path, base)
        what = f"{path}\0{facts.st_size}\0{facts.st_mtime_ns}".encode("utf-8", "surrogateescape")
        digest = hmac.new(key.encode(), what, hashlib.sha256).hexdigest()
        found.append(
            TransferFile(
                id=digest[:_ID_LENGTH],
                path=str(path),
                root=root,
                name=name,
                size=facts.st_size,
                mtime_ns=facts.st_mtime_ns,
                blob=folders.blob(path),
                sha256=recorded.get(path, ""),
            )
        )
    return found


def _recorded_digests(downloads: Iterable[CheckpointSource], folders: HeadFolders) -> dict[Path, str]:
    """Return file of the head → the sha256 that it was checked by when it was downloaded. Files of the hub have it in their names."""
    found = {}
    for source in (each for whole in downloads for each in whole.with_parts()):
        try:
            parsed = checkpoints.parse(source.checkpoint)
        except LemonbusError:
            continue  # no job can download it
        if isinstance(parsed, WheelCheckpoint | PackagesCheckpoint) and source.sha256:
            found[parsed.file(str(folders.cache))] = source.sha256
    return found
