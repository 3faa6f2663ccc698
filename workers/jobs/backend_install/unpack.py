"""Unpacks an archive into its own folder: no member, link or hard link may lead out of the folder."""

from __future__ import annotations

import os
import posixpath
import shutil
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, Final

from workers.jobs import disk
from workers.jobs.errors import SourceError

_DAMAGED: Final = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)


def unpack(archive: Path, folder: Path, name: str) -> None:
    """Unpack a tar (of any compression) or zip; raises :class:`SourceError`. ``name``: for messages."""
    folder.mkdir(parents=True)
    folder = folder.resolve()  # links above the folder are its owner's; links in it come from the archive
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, folder)
        else:
            _untar(archive, folder)
    except _DAMAGED as problem:
        raise SourceError(f"{name} is not an archive, or damaged", str(problem)) from problem
    _check_links(folder)


def find_program(folder: Path, executable: str) -> str:
    """Return the path of a program in the folder and make it executable; empty if the folder does not contain it."""
    found = [
        Path(parent, file)
        for parent, _, files in os.walk(folder)
        for file in files
        if file in (executable, f"{executable}.exe")
    ]
    if not found:
        return ""
    chosen = min(found, key=lambda path: (len(path.parts), str(path)))
    chosen.chmod(chosen.stat().st_mode | 0o755)
    return str(chosen.relative_to(folder))


def _untar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        disk.require_free_space(folder, sum(member.size for member in tar if member.isreg()))
        for member in tar:
            target = _inside(folder, member.name)
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            elif member.isreg():
                source = tar.extractfile(member)
                if source is not None:
                    _write(source, target, member.mode)
            elif member.issym():
                _link(folder, target, member.linkname)
            elif member.islnk():
                _prepare(target)
                original = _inside(folder, member.linkname)
                if original.is_symlink() or not original.is_file():
                    raise _refused(member.name, "is a link to no file of the archive")
                target.hardlink_to(original)
            else:
                raise _refused(member.name, "is neither a file nor a folder")


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as zipped:
        disk.require_free_space(folder, sum(member.file_size for member in zipped.infolist()))
        for member in zipped.infolist():
            target = _inside(folder, member.filename)
            mode = member.external_attr >> 16
            if member.is_dir():
                target.mkdir(parents=True, exist_ok=True)
            elif stat.S_ISLNK(mode):
                _link(folder, target, zipped.read(member).decode("utf-8", "replace"))
            else:
                with zipped.open(member) as source:
                    _write(source, target, mode or 0o644)


def _inside(folder: Path, name: str) -> Path:
    """Return the path for a member. A name that leads out of the folder, or through a link, is refused."""
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or not name.isprintable():
        raise _refused(name, "would lie outside of the folder")
    target = folder.joinpath(*parts)
    if os.path.realpath(target.parent) != os.path.normpath(target.parent.absolute()) and target != folder:
        raise _refused(name, "would be written through a link")
    return target


def _write(source: IO[bytes], target: Path, mode: int) -> None:
    _prepare(target)
    with target.open("xb") as file:
        shutil.copyfileobj(source, file, disk.BLOCK_BYTES)
    target.chmod(0o755 if mode & 0o100 else 0o644)


def _link(folder: Path, target: Path, to: str) -> None:
    """Make a symbolic link whose text does not lead out of the folder."""
    beside = str(target.parent.relative_to(folder))
    link_target = posixpath.normpath(posixpath.join(beside, to.replace("\\", "/")))
    if to.startswith(("/", "\\")) or link_target.split("/")[0] == ".." or not to:
        raise _refused(target.name, "is a link out of the folder")
    _prepare(target)
    target.symlink_to(to)


def _prepare(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or target.is_file():
        target.unlink()  # the last member with a name counts


def _check_links(folder: Path) -> None:
    """Refuse a link that leads out of the folder through other links, which its own text does not show."""
    root = os.path.realpath(folder)
    for parent, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(parent, name)  # noqa: PTH118 - os.walk speaks in strings
            if os.path.islink(path) and os.path.commonpath([root, os.path.realpath(path)]) != root:  # noqa: PTH114
                raise _refused(name, "is a link out of the folder")


def _refused(name: str, why: str) -> SourceError:
    return SourceError("the archive was refused: a member of it " + why, name)
