"""The npm packages of a ``package-lock.json``, installed once per machine into the cache of the tests, for programs that use them."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.clients.node_programs import NODE, npm, run
from tests.support.cache import made_once

_FILES: Final = ("package.json", "package-lock.json")
_UNREACHABLE: Final = re.compile(
    r"npm error code (ENOTFOUND|EAI_AGAIN|ECONN\w+|ETIMEDOUT|ERR_SOCKET_TIMEOUT|E(?:NET|HOST)UNREACH|E[45]\d\d"
    r"|UNABLE_TO_\w+|SELF_SIGNED_\w+|DEPTH_ZERO_\w+|CERT_\w+)"
)
"""Messages of npm if its registry cannot be reached or lacks a package; all others are a fault of the lock file."""
_PATIENCE_S: Final = 90.0


class _RegistryUnreachableError(Exception):
    """The packages cannot be fetched here; its text says why."""


def node_program(source: Path, folder: Path) -> list[str | Path]:
    """Return the command line of a copy of ``source`` in ``folder``, with the packages of its lock file.

    Skips the test if the packages cannot be fetched.
    """
    locked = [source.parent / name for name in _FILES]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in locked)).hexdigest()[:16]
    try:
        packages = made_once(f"npm-{digest}", partial(_install, locked))
    except _RegistryUnreachableError as error:
        pytest.skip(str(error))
    shutil.copy(source, folder)
    (folder / "node_modules").symlink_to(packages / "node_modules")
    return [NODE, "--preserve-symlinks", folder / source.name]


def _install(locked: list[Path], folder: Path) -> None:
    """Make a folder whose ``node_modules`` has exactly the locked packages."""
    for each in locked:
        shutil.copy(each, folder)
    try:
        done = run(npm("ci", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"), _PATIENCE_S, folder)
    except subprocess.TimeoutExpired:
        raise _RegistryUnreachableError(f"npm's registry did not deliver within {_PATIENCE_S:.0f} s") from None
    if unreachable := _UNREACHABLE.search(done.stdout):
        raise _RegistryUnreachableError(f"npm's registry cannot be used here: {unreachable[1]}")
    assert done.returncode == 0, done.stdout
