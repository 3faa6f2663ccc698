"""The packages of a page of docs/clients: those of the tests' own environment, or, for `make clients`, the versions that the page names."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.clients.client_page import ClientPage, Packages
from tests.clients.node_programs import NODE, npm, run

CLIENTS: Final = os.environ.get("CLIENTS", "")
"""Where `make clients` keeps packages."""
KEPT_MB: Final = 150
"""A page whose packages are larger has them installed again the next time, so that all of them never have gigabytes."""
SCRIPTS: Final = {"@anthropic-ai/claude-code": "install.cjs", "opencode-ai": "postinstall.mjs"}
"""npm's package → the script that puts its program in place. No other script of a package is run."""
_PATIENCE_S: Final = 240.0


class Programs(NamedTuple):
    """Where a page's programs are."""

    folders: list[Path]
    """For ``PATH``, the first one first."""
    python: Path
    modules: Path | None = None
    """``node_modules``."""


@contextmanager
def packages_of(page: ClientPage) -> Iterator[Programs]:
    """Give the programs of a page. Skips the test if they are missing here, and says why."""
    if not CLIENTS:
        yield _own(page)
        return
    folder = Path(CLIENTS).absolute() / page.name
    folder.mkdir(parents=True, exist_ok=True)
    try:
        programs = Programs([NODE.parent], Path(sys.executable))
        for packages in page.packages:
            programs = _installed(packages, page.tried, folder, programs)
        yield programs
    finally:
        if _megabytes(folder) > KEPT_MB:
            shutil.rmtree(folder)


def _own(page: ClientPage) -> Programs:
    """The packages of the environment that runs the tests."""
    for packages in page.packages:
        for name in packages.requirements:
            try:
                found = packages.installer == "pip" and version(name)
            except PackageNotFoundError:
                found = False
            if not found:
                pytest.skip(f"{name} is installed by `make clients`")
    return Programs([], Path(sys.executable))


def _installed(packages: Packages, tried: dict[str, str], folder: Path, so_far: Programs) -> Programs:
    python, node = folder / "python", folder / "npm"
    if packages.installer == "pip":
        wanted = [f"{requirement}=={tried[name]}" for name, requirement in packages.requirements.items()]
        uv = [sys.executable, "-m", "uv", "--no-cache", "--quiet"]
        commands: list[list[str | Path]] = [
            [*uv, "venv", "--clear", "--python", sys.executable, python],
            [*uv, "pip", "install", "--python", python, *wanted],
        ]
        _make_once(python, wanted, commands)
        return so_far._replace(folders=[python / "bin", *so_far.folders], python=python / "bin" / "python")
    wanted = [f"{name}@{tried[name]}" for name in packages.requirements]
    modules = node / "node_modules"
    scripts: list[list[str | Path]] = [
        [NODE, modules / name / script] for name, script in SCRIPTS.items() if name in tried
    ]
    _make_once(node, wanted, [npm("install", "--prefix", node, *wanted), *scripts])
    return so_far._replace(folders=[modules / ".bin", *so_far.folders], modules=modules)


def _make_once(folder: Path, wanted: list[str], commands: list[list[str | Path]]) -> None:
    """Run the commands that fill a folder, unless they did for the same versions."""
    stamp, versions = folder / "installed.txt", "\n".join(wanted)
    if stamp.exists() and stamp.read_text() == versions:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in commands:
        done = run(command, _PATIENCE_S)
        assert done.returncode == 0, f"{command}: {done.stdout}"
    stamp.write_text(versions)


def _megabytes(folder: Path) -> float:
    return sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file()) / 1e6
