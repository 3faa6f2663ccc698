"""``python -m deploy.packages.dist FOLDER``: the sdist and the wheel, the same bytes from the same files.

It needs the package ``build``. All times in the archives are ``SOURCE_DATE_EPOCH``, or the time of the last commit. The wheel is
made from the sdist, so the sdist is complete.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = (
    *("LICENSE", "README.md", "pyproject.toml", "setup.cfg", "setup.py"),
    *("deploy/launch", "protocol", "supervisor", "workers", "gateway"),
)


def epoch() -> str:
    """Return the time that all files get, in seconds since 1970."""
    if chosen := os.environ.get("SOURCE_DATE_EPOCH"):
        return chosen
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit("the time of the last commit is unknown: set SOURCE_DATE_EPOCH (seconds since 1970)")
    return done.stdout.strip()


def main(folder: Path) -> None:
    """Write both into the folder; raise ``CalledProcessError`` if a build fails."""
    time = epoch()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": time}
    folder.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)  # modes of files are in the archives
    with tempfile.TemporaryDirectory() as made:
        # The files of a checkout without what others have built there; modes and times differ between checkouts.
        source = Path(made) / "source"
        _copy(source, int(time))
        _build("--sdist", source, Path(made), environment)
        (archive,) = Path(made).glob("*.tar.gz")
        normalized = folder / archive.name
        normalized.write_bytes(normalize(archive.read_bytes(), int(time)))
        shutil.unpack_archive(normalized, made)
        _build("--wheel", Path(made) / archive.name.removesuffix(".tar.gz"), folder, environment)


def _build(kind: str, source: Path, folder: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "build", kind, "--outdir", str(folder), str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}\nlemonbus: no {kind.removeprefix('--')} was made")


def _files() -> Iterator[Path]:
    for name in SOURCES:
        path = ROOT / name
        yield from [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def _copy(target: Path, time: int) -> None:
    for file in _files():
        if "__pycache__" in file.parts:
            continue
        copy = target / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
        copy.chmod(0o644)
        os.utime(copy, (time, time))


def normalize(archive: bytes, time: int) -> bytes:
    """Return a ``.tar.gz`` with the same files in order of their names, of user 0 and with one time."""
    plain, packed = io.BytesIO(), io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as old,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=time, filename="") as compressed:
        compressed.write(plain.getvalue())
    return packed.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
