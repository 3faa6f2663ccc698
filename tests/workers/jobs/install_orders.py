"""Orders for the install job, and the files that it leaves in a cache."""

from __future__ import annotations

from pathlib import Path

from protocol.messages.backend_installs import Archive, Installed, InstallFailed, StartInstall, StartUninstall
from protocol.models import installations
from protocol.models.installations import Installation
from tests.support.fakes.release_server import ReleaseServer, sha256
from workers.jobs.install import run_order
from workers.jobs.progress import DownloadProgress

NAME = "llama-b1-bin-ubuntu-vulkan-x64.tar.gz"


def order(
    releases: ReleaseServer, cache: Path, version: str = "b1", name: str = NAME, digest: str = ""
) -> StartInstall:
    archive = Archive(f"{releases.url}/{name}", digest or sha256(releases.files.get(name, b"")))
    return StartInstall("llamacpp", "vulkan", version, "d1", str(cache), "llama-server", archive=archive, retire=True)


def find_installed(cache: Path) -> list[Installation]:
    return installations.find_installations(str(cache), "llamacpp", "vulkan")


def run(order: StartInstall | StartUninstall, progress: DownloadProgress | None = None) -> Installed:
    result = run_order(order, progress or DownloadProgress(), offline=False)
    assert isinstance(result, Installed), result
    return result


def refused(order: StartInstall, cache: Path) -> str:
    """Run an order that must fail and leave nothing; return what the caller is told."""
    result = run_order(order, DownloadProgress(), offline=False)
    assert isinstance(result, InstallFailed)
    assert str(cache) not in result.failure.message
    assert leftovers(cache) == []
    return result.failure.message


def leftovers(cache: Path) -> list[str]:
    home = installations.backend_folder(str(cache), "llamacpp", "vulkan")
    return [path.name for path in home.iterdir() if path.name != ".lock" and not path.name.startswith(".download-")]


def partial_downloads(cache: Path) -> list[Path]:
    """What came of downloads that are not whole."""
    return list(installations.backend_folder(str(cache), "llamacpp", "vulkan").glob(".download-*"))


def write_partial_download(cache: Path, digest: str, data: bytes) -> None:
    home = installations.backend_folder(str(cache), "llamacpp", "vulkan")
    home.mkdir(parents=True)
    (home / f".download-{digest}").write_bytes(data)
