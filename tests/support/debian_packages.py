"""Programs that tests run if they are available: unpacked from the distribution's packages, so that no service is installed.

    python -m tests.support.debian_packages nginx caddy openssl
    python -m tests.support.debian_packages chromium

An unavailable package is named in one line; this is not an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.proxies import UNPACKED, program

LIBRARIES: Final = {"libfaketime": "usr/lib/*/faketime/libfaketimeMT.so.1"}
"""A package without a program → its file."""
INSTALLED: Final = {"chromium": ("chromium", "fonts-dejavu-core")}
"""A program that needs the libraries of many packages → what is installed for it."""


def install(packages: Sequence[str]) -> str:
    """Install packages and what they need; return why they could not be, empty if they were."""
    if not shutil.which("apt-get"):
        return "this is not Debian"
    if os.geteuid():
        return f"only root can install it: sudo apt-get install {' '.join(packages)}"
    done = _run(["apt-get", "-q", "-y", "--no-install-recommends", "install", *packages], "/")
    return f"apt-get install failed: {_reason(done)}" if done.returncode else ""


def unpack(package: str) -> str:
    """Unpack a package below :data:`UNPACKED`; return why it could not be, empty if it was."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "this is not Debian"
    with tempfile.TemporaryDirectory() as folder:
        # The user _apt may not write here; apt warns about it and downloads as this user.
        loaded = _run(["apt-get", "-q", "download", package], folder)
        if loaded.returncode:
            return f"apt-get download failed: {_reason(loaded)}"
        for archive in Path(folder).glob("*.deb"):
            UNPACKED.mkdir(parents=True, exist_ok=True)
            done = _run(["dpkg-deb", "-x", str(archive), str(UNPACKED)], folder)
            if done.returncode:
                return f"dpkg-deb failed: {done.stderr.strip()}"
    return ""


def library(package: str) -> str:
    """Return the path of the file of a package without a program; empty if the package is missing."""
    found = [each for root in (UNPACKED, Path("/")) for each in root.glob(LIBRARIES[package])]
    return str(found[0]) if found else ""


def _is_missing(package: str) -> bool:
    return not (library(package) if package in LIBRARIES else program(package))


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def _reason(failed: subprocess.CompletedProcess[str]) -> str:
    return (failed.stderr.strip().splitlines() or ["no reason given"])[-1]


def main(packages: list[str]) -> None:
    """Unpack, or install, those whose program is missing."""
    missing = [package for package in packages if _is_missing(package)]
    if missing and not os.geteuid() and shutil.which("apt-get"):
        _run(["apt-get", "-q", "update"], "/")
    for package in missing:
        if problem := install(INSTALLED[package]) if package in INSTALLED else unpack(package):
            print(f"{package} is not available ({problem}): its tests are skipped")


if __name__ == "__main__":
    main(sys.argv[1:])
