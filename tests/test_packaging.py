"""Installed beside PyPI's ``supervisor``, both work; so do editable installs and plain checkouts."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pip
import pytest

from tests.support.cache import made_once

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "supervisor", "workers", "gateway")
THEIRS = "supervisor==4.3.0"
PIP = Path(pip.__file__).parent / "__pip-runner__.py"
"""The pip that ``pip --python`` runs in the other environment."""
FILES = [
    path.relative_to(ROOT)
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.*")
    if "__pycache__" not in path.parts
]
"""Modules, and the data that they read."""


def run(*command: str | Path, check: bool = True, environment: dict[str, str] | None = None) -> str:
    """Run a command away from the checkout and return its output."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LEMON", "VIRTUAL"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd="/",
        env={**clean, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files of a release, because building leaves files in its tree."""
    copy = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, "deploy"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, source)
    (built,) = folder.glob("*.whl")
    return built


def download_theirs(folder: Path) -> None:
    run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--retries=1", "-d", folder, THEIRS)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PyPI's supervisor; without an index, a wheel that installs the same top-level package."""
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        (found,) = made_once(THEIRS, download_theirs).glob("supervisor-*")
        return found
    made = tmp_path_factory.mktemp("theirs") / "supervisor-4.3.0-py3-none-any.whl"
    info = "supervisor-4.3.0.dist-info"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("supervisor/__init__.py", "")
        archive.writestr("supervisor/__main__.py", "theirs = True")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: supervisor\nVersion: 4.3.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return made


class Environment:
    """A virtual environment that sees the dependencies of this one, and nothing else of it."""

    def __init__(self, path: Path) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", path)
        self.python = path / "bin" / "python"
        self.lemonbus = path / "bin" / "lemonbus"
        self.packages = path / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def pip(self, *arguments: str | Path) -> None:
        run(self.python, PIP, *arguments)

    def install(self, *arguments: str | Path) -> None:
        self.pip("install", "-q", "--no-deps", "--no-build-isolation", "--no-compile", *arguments)

    def borrow_dependencies(self) -> None:
        (self.packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def module(self, name: str, **environment: str) -> Path:
        """Return the file that an import would run."""
        find = f"import importlib.util; print(importlib.util.find_spec({name!r}).origin)"
        return Path(run(self.python, "-c", find, environment=environment).strip())


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(tmp_path / "venv")


def test_a_wheel_holds_one_package_with_all_four_packages(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"lemonbus", f"lemonbus-{wheel.name.split('-')[1]}.dist-info"}
    assert {f"lemonbus/packages/{path}" for path in FILES} <= names


def test_beside_their_supervisor(wheel: Path, theirs: Path, environment: Environment, tmp_path: Path) -> None:
    """Install theirs first: ours has no file in common with it, and changes none of its files."""
    for package in (theirs, wheel):
        environment.install(package)
    environment.borrow_dependencies()
    installed_root = environment.packages / "lemonbus" / "packages"

    assert environment.module("supervisor") == environment.packages / "supervisor" / "__init__.py"
    assert (
        environment.module("supervisor.__main__", PYTHONPATH=str(installed_root))
        == installed_root / "supervisor" / "__main__.py"
    )
    assert run(environment.lemonbus, "version").startswith("lemonbus ")
    starts_our_supervisor_from_any_folder(environment, tmp_path)

    environment.pip("uninstall", "-q", "-y", "supervisor")
    assert (
        environment.module("supervisor.__main__", PYTHONPATH=str(installed_root))
        == installed_root / "supervisor" / "__main__.py"
    )
    assert run(environment.lemonbus, "version").startswith("lemonbus ")


def starts_our_supervisor_from_any_folder(environment: Environment, tmp_path: Path) -> None:
    """A runtime directory that is too long for a socket ends our supervisor with its own line; theirs has none."""
    (tmp_path / "supervisor.py").write_text("raise SystemExit('the folder we were started in')")
    output = run(
        *("env", "-C", tmp_path, environment.lemonbus, "serve", "--runtime-dir", tmp_path / ("x" * 100)), check=False
    )
    assert "too long for a socket" in output, output


def test_pip_install_editable(source: Path, environment: Environment) -> None:
    environment.borrow_dependencies()
    environment.install("-e", source)
    assert not (environment.packages / "lemonbus").exists()
    assert run(environment.lemonbus, "version").startswith("lemonbus ")
    assert run(environment.lemonbus, "config", "--json", environment={"HOME": "/"}).startswith("{")


def test_a_plain_checkout(source: Path) -> None:
    assert run(sys.executable, source / "deploy" / "launch", "version").startswith("lemonbus ")
