"""The releases that backends are installed from: wheels and archives, pinned by sha256 in a data file and in settings.

An archive without a known sha256 is not installed. The administrator pins it with the setting ``backend_releases``, as
``RECIPE:BACKEND@VERSION=URL#sha256=DIGEST``.
"""

from __future__ import annotations

import hashlib
import platform
import re
import sys
from pathlib import Path
from typing import Final

import msgspec

from protocol.config.settings import RELEASE_PATTERN, Settings
from protocol.messages.backend_installs import Archive, PinnedWheel
from protocol.models.recipes import Provision
from workers.backends.registry import DESCRIPTORS

DATA: Final = Path(__file__).parent.parent / "data" / "backends.json"
GITHUB: Final = "https://github.com"
"""The setting ``release_mirror`` replaces this."""
_RELEASE: Final = re.compile(RELEASE_PATTERN)


class PinnedRelease(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files that a backend is installed from on this machine."""

    version: str
    wheels: list[PinnedWheel] = []
    archive: Archive = Archive()

    @property
    def complete(self) -> bool:
        """Whether the digests of all its files are known."""
        return bool(self.wheels) or bool(self.archive.url and self.archive.sha256)

    @property
    def digest(self) -> str:
        """A short digest of everything that is pinned; for wheels, also of the Python that they are for."""
        sums = [self.archive.sha256]
        if self.wheels:
            sums = [file.sha256 for wheel in self.wheels for file in wheel.files.values()]
            sums.append(sys.implementation.cache_tag)
        return hashlib.sha256(" ".join(sorted(sums)).encode()).hexdigest()[:8]


class _ReleaseItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: str
    wheels: list[PinnedWheel] = []
    archives: dict[str, Archive] = {}
    """``SYSTEM-MACHINE`` → its file. ``{version}`` in an address is the version."""


class BackendReleases:
    """The pins of this machine."""

    def __init__(self, settings: Settings, data: Path = DATA) -> None:
        """Read the data file and the settings. Errors in the settings are in ``problems``."""
        self.problems: list[str] = []
        self._mirror = settings.release_mirror.rstrip("/")
        items = msgspec.json.decode(data.read_bytes(), type=dict[str, _ReleaseItem])
        self._pins = {key: self._pin(item) for key, item in items.items()}
        for text in settings.backend_releases:
            self._read(text)

    def of(self, recipe: str, backend: str) -> PinnedRelease | None:
        """Return the release of a backend, None if none is known."""
        return self._pins.get(f"{recipe}:{backend}")

    def _pin(self, item: _ReleaseItem) -> PinnedRelease:
        archive = item.archives.get(f"{sys.platform}-{platform.machine()}", Archive())
        url = self._mirrored(archive.url.replace("{version}", item.version))
        return PinnedRelease(item.version, item.wheels, Archive(url, archive.sha256))

    def _mirrored(self, url: str) -> str:
        return self._mirror + url.removeprefix(GITHUB) if self._mirror and url.startswith(f"{GITHUB}/") else url

    def _read(self, text: str) -> None:
        found = _RELEASE.fullmatch(text)
        if found is None:
            self.problems.append(f"backend_releases: {text!r} is not RECIPE:BACKEND@VERSION=URL#sha256=DIGEST")
            return
        recipe, name, version, url, digest = found.groups()
        descriptor = DESCRIPTORS.get(recipe)
        backend = descriptor.backend(name) if descriptor and name != "default" else None
        if backend is None:
            self.problems.append(f"backend_releases: there is no backend {recipe}:{name}")
        elif backend.provision is not Provision.ARCHIVE:
            self.problems.append(f"backend_releases: {recipe}:{name} is not installed from an archive")
        else:
            self._pins[f"{recipe}:{name}"] = PinnedRelease(
                version, archive=Archive(self._mirrored(url), digest.lower())
            )
