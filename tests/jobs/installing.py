"""Orders for the install job, and what it leaves in a cache."""

from __future__ import annotations

from pathlib import Path

from protocol import installed
from protocol.backends import Archive, Installed, InstallFailed, Installing, Uninstalling
from protocol.installed import Installation
from tests.house.releases import Releases, sha256
from workers.jobs.gauge import Gauge
from workers.jobs.install import work

NAME = "llama-b1-bin-ubuntu-vulkan-x64.tar.gz"


def order(releases: Releases, cache: Path, version: str = "b1", name: str = NAME, digest: str = "") -> Installing:
    archive = Archive(f"{releases.url}/{name}", digest or sha256(releases.files.get(name, b"")))
    return Installing("llamacpp", "vulkan", version, "d1", str(cache), "llama-server", archive=archive, retire=True)


def there(cache: Path) -> list[Installation]:
    return installed.find(str(cache), "llamacpp", "vulkan")


def run(order: Installing | Uninstalling, gauge: Gauge | None = None) -> Installed:
    result = work(order, gauge or Gauge(), offline=False)
    assert isinstance(result, Installed), result
    return result


def refused(order: Installing, cache: Path) -> str:
    """Run an order that must fail and leave nothing; return what the caller is told."""
    result = work(order, Gauge(), offline=False)
    assert isinstance(result, InstallFailed)
    assert str(cache) not in result.failure.message
    assert leftovers(cache) == []
    return result.failure.message


def leftovers(cache: Path) -> list[str]:
    home = installed.home(str(cache), "llamacpp", "vulkan")
    return [path.name for path in home.iterdir() if path.name != ".lock" and not path.name.startswith(".download-")]


def pieces(cache: Path) -> list[Path]:
    """What came of downloads that are not whole."""
    return list(installed.home(str(cache), "llamacpp", "vulkan").glob(".download-*"))


def put_piece(cache: Path, digest: str, data: bytes) -> None:
    home = installed.home(str(cache), "llamacpp", "vulkan")
    home.mkdir(parents=True)
    (home / f".download-{digest}").write_bytes(data)
