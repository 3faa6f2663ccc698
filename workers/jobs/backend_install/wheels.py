"""Installs pinned wheels into their own folder: ``pip install --target``, with every byte checked by sha256.

``pip`` downloads them, because it has this machine's settings for index, proxy and certificates. It runs no code from a
wheel.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from protocol.messages.backend_installs import PinnedWheel, WheelFile
from workers.jobs import disk, pip
from workers.jobs.progress import DownloadProgress

_UNPACKED: Final = 4
"""Disk space for installing a wheel, as a multiple of its size."""


def install(wheels: list[PinnedWheel], site: Path, staging: Path, progress: DownloadProgress) -> None:
    """Install the wheels into ``site``; ``staging`` is for temporary files. Raises :class:`SourceError`."""
    known = {name: file for wheel in wheels for name, file in wheel.files.items()}
    disk.require_free_space(
        staging, _UNPACKED * sum(max(file.size for file in wheel.files.values()) for wheel in wheels)
    )
    requirements = staging / "requirements.txt"
    requirements.write_text("".join(_line(wheel) for wheel in wheels))
    seen: dict[str, None] = {}

    def look() -> None:
        for path in _wheels(staging):
            if path.name not in seen:
                seen[path.name] = None
                progress.begin(path.name, len(seen), len(wheels), known.get(path.name, WheelFile("")).size)
            if path.name == progress.reading.file:
                progress.at(disk.size_of(path))

    progress.begin(wheels[0].requirement, 1, len(wheels), 0)
    words = ["install", "--target", str(site), "--require-hashes", "--no-deps", "--only-binary", ":all:"]
    words += ["--no-cache-dir", "--no-warn-script-location", "--requirement", str(requirements)]
    pip.run(words, staging, look)
    progress.begin(wheels[-1].requirement, len(wheels), len(wheels), 0)
    progress.end()


def _line(wheel: PinnedWheel) -> str:
    hashes = "".join(f" \\\n --hash=sha256:{file.sha256}" for file in wheel.files.values())
    return f"{wheel.requirement}{hashes}\n"


def _wheels(staging: Path) -> list[Path]:
    # os.walk, because pip removes folders meanwhile, and pathlib's rglob then raises.
    return [Path(folder, file) for folder, _, files in os.walk(staging) for file in files if file.endswith(".whl")]
