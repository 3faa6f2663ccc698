"""``make tools`` names everything that is missing on a machine, in one line each."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MAKE = shutil.which("make")
ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.skipif(MAKE is None, reason="there is no make")


def tools(path: Path, python: str | Path) -> tuple[int, list[str]]:
    """Run it with the programs of one folder; return its exit code and what it printed."""
    done = subprocess.run(
        [str(MAKE), "tools", f"PYTHON={python}"],
        cwd=ROOT,
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).splitlines()


def program(path: Path, text: str = "") -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_what_is_missing_is_named_in_one_line(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    good = program(tmp_path / "good")
    without_venv = program(
        tmp_path / "without-venv", 'case "$2" in *venv*) echo No module named venv >&2; exit 1;; esac'
    )
    without_libgomp = program(tmp_path / "without-libgomp", 'case "$2" in *libgomp*) exit 1;; esac')
    code, lines = tools(programs, good)
    assert (code, len(lines)) == (2, 1)
    assert "lemonbus needs git: " in lines[0]
    program(programs / "git")
    for python, lacking in (
        (tmp_path / "none", "Python 3.11 or newer"),
        ("", "Python 3.11 or newer"),
        (program(tmp_path / "old", "exit 1"), "Python 3.11 or newer"),
        (without_venv, "venv"),
        (without_libgomp, "libgomp.so.1"),
    ):
        code, lines = tools(programs, python)
        assert (code, len(lines)) == (2, 1), lines
        assert f"lemonbus needs {lacking}: sudo apt-get install " in lines[0]
    assert tools(programs, good) == (0, [])


def test_what_make_asks_for_is_what_the_readme_names() -> None:
    named = re.search(r"^    sudo apt-get install (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named is not None
    asked = set(re.findall(r"sudo apt-get install ([\w. -]+)\)", (ROOT / "Makefile").read_text()))
    assert set(" ".join(asked).split()) - {"python3.11", "python3.11-venv"} == set(named[1].split()) - {"make"}
