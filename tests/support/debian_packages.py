"""Programs that tests run if they are available: unpacked from the distribution's packages, so that no service is installed.

    python -m tests.support.debian_packages nginx caddy openssl

An unavailable package is named in one line; this is not an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.proxies import UNPACKED, program


def unpack(package: str) -> str:
    """Unpack a package below :data:`UNPACKED`; return why it could not be, empty if it was."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "this is not Debian"
    with tempfile.TemporaryDirectory() as folder:
        # The user _apt may not write here; apt warns about it and downloads as this user.
        loaded = _run(["apt-get", "-q", "download", package], folder)
        if loaded.returncode:
            reasons = loaded.stderr.strip().splitlines() or ["no reason given"]
            return f"apt-get download failed: {reasons[-1]}"
        for archive in Path(folder).glob("*.deb"):
            UNPACKED.mkdir(parents=True, exist_ok=True)
            done = _run(["dpkg-deb", "-x", str(archive), str(UNPACKED)], folder)
            if done.returncode:
                return f"dpkg-deb failed: {done.stderr.strip()}"
    return ""


def _run(command: list[str], folder: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def main(packages: list[str]) -> None:
    """Unpack those whose program is missing."""
    missing = [package for package in packages if not program(package)]
    if missing and not os.geteuid() and shutil.which("apt-get"):
        _run(["apt-get", "-q", "update"], "/")
    for package in missing:
        if problem := unpack(package):
            print(f"{package} is not available ({problem}): its tests are skipped")


if __name__ == "__main__":
    main(sys.argv[1:])
