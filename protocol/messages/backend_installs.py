"""Messages about backends: what a gateway asks of the supervisor, and what the supervisor asks of a job."""

from __future__ import annotations

import msgspec

from protocol.failures import Failure
from protocol.messages.calls import repeated_call
from protocol.wire.envelope import control_message


@repeated_call
class InstallBackend(msgspec.Struct, frozen=True, omit_defaults=True):
    """Install or update a backend; joins a running install → :class:`BackendDone`.

    With ``progress`` the gateway gets :class:`~protocol.messages.calls.Progress` under the call's number meanwhile,
    with ``RECIPE:BACKEND`` as its model. ``force``: install it even if the machine lacks the device that the backend
    computes on.
    """

    number: int
    recipe: str
    backend: str
    force: bool = False
    progress: bool = False
    detached: bool = False
    """Answer as soon as the installation runs → :class:`~protocol.messages.model_files.DownloadReport`."""


@repeated_call
class ListInstalls(msgspec.Struct, frozen=True):
    """→ ``list[DownloadReport]``: installations as :class:`~protocol.messages.model_files.ListDownloads` lists downloads.

    Their ``model`` is ``RECIPE:BACKEND``.
    """

    number: int


@repeated_call
class StopInstall(msgspec.Struct, frozen=True, omit_defaults=True):
    """Stop an installation, and keep what was fetched → ``DownloadReport``, when its job has ended; ``not_found``: there is none.

    Waiting calls are refused with ``download_paused`` or ``cancelled_by_operator``. The next :class:`InstallBackend` resumes it.
    """

    number: int
    name: str
    """``RECIPE:BACKEND``."""
    pause: bool = False
    """It is listed as paused, not as cancelled."""
    remove: bool = False
    """It is no longer listed."""


@repeated_call
class UninstallBackend(msgspec.Struct, frozen=True, omit_defaults=True):
    """Unload the models that use a backend, then remove it → :class:`BackendDone`."""

    number: int
    recipe: str
    backend: str


class BackendDone(msgspec.Struct, frozen=True, omit_defaults=True):
    """An install or uninstall has succeeded. ``recipe`` and ``backend`` are spelled as the caller did."""

    recipe: str
    backend: str
    version: str = ""
    files: int = 1


class WheelFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file that satisfies a requirement."""

    sha256: str
    size: int = 0


class PinnedWheel(msgspec.Struct, frozen=True):
    """One distribution of a backend: ``NAME==VERSION`` and its wheels for all platforms, by file name."""

    requirement: str
    files: dict[str, WheelFile]


class Archive(msgspec.Struct, frozen=True, omit_defaults=True):
    """One file of a release. It is installed only with a ``sha256``."""

    url: str = ""
    sha256: str = ""


@control_message
class StartInstall(msgspec.Struct, frozen=True, omit_defaults=True):
    """Supervisor → job: install this from the wheels or, without wheels, from the archive.

    ``retire``: other versions are not in use; remove them.
    """

    recipe: str
    backend: str
    version: str
    digest: str
    cache_dir: str
    executable: str = ""
    """The program to find in the archive."""
    wheels: list[PinnedWheel] = []
    archive: Archive = Archive()
    retire: bool = False


@control_message
class StartUninstall(msgspec.Struct, frozen=True):
    """Supervisor → job: remove every version of this backend."""

    recipe: str
    backend: str
    cache_dir: str


@control_message
class InstallProgress(msgspec.Struct, frozen=True):
    """Job → supervisor: the progress. Sizes in bytes; 0 for an unknown total."""

    file: str
    file_index: int
    total_files: int
    bytes_downloaded: int
    bytes_total: int


@control_message
class Installed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Job → supervisor: the backend is completely installed; or, after :class:`StartUninstall`, removed."""

    files: int = 0


@control_message
class InstallFailed(msgspec.Struct, frozen=True):
    """Job → supervisor: it failed and changed nothing. What was downloaded stays for the next try."""

    failure: Failure
