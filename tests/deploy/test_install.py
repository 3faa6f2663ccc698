"""The installation of a checkout: one line of progress, and one line that says what failed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_server

import pip
import pytest

from deploy.install import patience, reason
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
from pathlib import Path
import zipfile

def build_editable(folder, settings=None, metadata=None):
    name = "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder) / name, "w") as wheel:
        wheel.writestr("toy-1.0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: toy\\nVersion: 1.0\\nRequires-Dist: needed\\n")
        wheel.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("toy-1.0.dist-info/RECORD", "")
    return name

build_wheel = build_editable
"""
"""A build backend that only needs Python: its project ``toy`` needs the package ``needed``."""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A virtual environment with the pip of this one, and nothing else."""
    folder = tmp_path / ".venv"
    venv.create(folder, with_pip=False, symlinks=True)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (packages / "pip").symlink_to(Path(pip.__file__).parent)
    return folder / "bin" / "python"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "backend.py").write_text(PROJECT)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    return folder


def folder(python: Path) -> str:
    """Return the name of the environment of ``python``."""
    return os.path.relpath(python.parents[1], ROOT)


SHORT_SILENCE = "from deploy import install; import sys; install.SILENCE_S = 1.0; sys.exit(install.main(sys.argv[1:]))"


def install(python: Path, project: Path, *program: str, **pip_options: str) -> tuple[int, str, str]:
    """Run it with only the given pip configuration; return its exit code and what it printed."""
    program = program or (str(ROOT / "deploy" / "install.py"),)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    environment |= {
        "PIP_CONFIG_FILE": os.devnull,
        **{f"PIP_{name.upper()}": value for name, value in pip_options.items()},
    }
    done = subprocess.run(
        [python, *program, str(project), "a toy"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def write_needed(folder: Path) -> None:
    """Write a wheel of the package ``needed``."""
    with zipfile.ZipFile(folder / "needed-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("needed-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: needed\nVersion: 1.0\n")
        wheel.writestr("needed-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("needed-1.0.dist-info/RECORD", "")


def test_an_extra_is_installed_without_its_project(python: Path, tmp_path: Path) -> None:
    write_needed(tmp_path)
    (tmp_path / "setup.cfg").write_text("[options.extras_require]\ndocs =\n    # A comment.\n    needed >= 1.0, < 2\n")
    code, _, problem = install(python, tmp_path / "setup.cfg[docs]", no_index="1", find_links=str(tmp_path))
    assert (code, problem) == (0, "")
    listed = subprocess.run(
        [python, "-m", "pip", "list"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert "needed" in listed
    assert "toy" not in listed


def test_one_line_says_what_is_installed(python: Path, project: Path, tmp_path: Path) -> None:
    write_needed(tmp_path)
    expected = install(python, project, no_index="1", find_links=str(tmp_path))
    assert expected == (0, f"Installing a toy into {folder(python)}; this happens once.\n", "")


@contextmanager
def silent_index() -> Iterator[str]:
    """A package index that accepts connections but does not answer."""
    with create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/simple"


def test_a_missing_index_is_reported_in_one_line_within_seconds(python: Path, project: Path) -> None:
    began = time.monotonic()
    code, out, err = install(python, project, index_url=f"http://127.0.0.1:{free_port()}/simple")
    assert time.monotonic() - began < 30  # far less on a quiet machine: pip itself waits 8 s for each package
    assert code != 0
    assert out == f"Installing a toy into {folder(python)}; this happens once.\n"
    assert err.count("\n") == 1
    assert "the package index cannot be reached (the connection is refused): check the network" in err
    assert str(python.parent.parent / "install.log") in err


def test_a_silent_index_is_reported_while_pip_waits(python: Path, project: Path) -> None:
    with silent_index() as url:
        code, out, err = install(python, project, "-c", SHORT_SILENCE, index_url=url, timeout="2", retries="1")
    assert code != 0
    assert out.splitlines()[1:] == ["The package index has not answered yet; is there a network?"]
    assert "cannot be reached (it does not answer)" in err


def test_the_users_own_pip_settings_for_waiting_apply() -> None:
    assert patience("") == {"PIP_RETRIES": "1", "PIP_TIMEOUT": "10"}
    assert patience("global.index-url='https://example.org/'\nglobal.retries='7'\n") == {"PIP_TIMEOUT": "10"}
    assert patience(":env:.default-timeout='180'\nuser.retries='3'\n") == {}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "the disk is full",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n", "its hash differs"),
        (
            "WARNING: Retrying after 'NewConnectionError('<object>: [Errno -3] Temporary failure in name resolution')'\n",
            "cannot be reached (its name is not found)",
        ),
        (
            "WARNING: Retrying after connection broken by 'SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] failed')'\n",
            "cannot be reached (its certificate is not trusted)",
        ),
        ("ERROR: No matching distribution found for falcon>=99\n", "the package index has no falcon>=99"),
        ("ERROR: first\nERROR: Failed to build gevent\n", "Failed to build gevent"),
        (
            "  ERROR: Cannot install setuptools>=77\n  ERROR: ResolutionImpossible: for help see\nerror: subprocess-exited\n",
            "Cannot install setuptools>=77",
        ),
        ("Collecting pytest-timeout>=2.3.1\nERROR: Cannot install one and two\n", "Cannot install one and two"),
        ("Killed\n", "pip failed"),
    ],
)
def test_a_failure_in_words(output: str, expected: str) -> None:
    assert expected in reason(output)
