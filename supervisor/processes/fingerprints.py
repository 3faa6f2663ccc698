"""Fingerprints of gateways and workers: the settings, release and files that they were started with.

By these, a new supervisor knows which of the processes that it took over are outdated. The files count because two states
of a checkout have the same version number.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from protocol import RELEASE, VERSION
from protocol.config.settings import Settings
from protocol.messages.reload import SettingEffect
from supervisor.processes.setting_effects import EFFECTS

_PACKAGES: Final = ("gateway", "protocol", "supervisor", "workers")


def files_digest(folder: Path) -> str:
    """Return a digest that changes with any file of the four packages in a folder: with its size or time, as Python decides to compile again."""
    return hashlib.sha256("\n".join(sorted(_files(folder))).encode(errors="surrogateescape")).hexdigest()[:12]


def _files(folder: Path) -> Iterator[str]:
    for package in _PACKAGES:
        for parent, folders, names in os.walk(folder / package):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                path = os.path.join(parent, name)  # noqa: PTH118 - half the time of pathlib
                with contextlib.suppress(FileNotFoundError):  # just replaced
                    facts = os.stat(path)  # noqa: PTH116
                    yield f"{path} {facts.st_size} {facts.st_mtime_ns}"


LOADED_FILES: Final = files_digest(Path(__file__).resolve().parents[2])
"""Made when this module is imported, by the fork server, whose supervisors all run these files."""


def gateway_fingerprint(settings: Settings) -> str:
    """Return what gateways differ in that were started with different settings, or by different releases or files."""
    reads = {SettingEffect.GATEWAYS, SettingEffect.LISTENER}
    return _fingerprint(settings, (name for name, effects in EFFECTS.items() if reads.intersection(effects)))


def worker_fingerprint(settings: Settings) -> str:
    """Return what spare workers differ in that were started with different settings, or by different releases or files."""
    return _fingerprint(settings, (name for name, effects in EFFECTS.items() if SettingEffect.NEW_LOADS in effects))


def _fingerprint(settings: Settings, names: Iterable[str]) -> str:
    values = [(name, getattr(settings, name)) for name in names]
    return f"{RELEASE}-{VERSION}-{LOADED_FILES}-{hashlib.sha256(msgspec.json.encode(values)).hexdigest()[:16]}"


def release_of(fingerprint: str) -> str:
    """Return the part of a fingerprint that names the release and the files from which a process was started."""
    return fingerprint.rpartition("-")[0]
