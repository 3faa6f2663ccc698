"""The Debian package under a real systemd: installed, upgraded while streams ran, removed and purged."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.bare.container import Container
from tests.bare.root import CHECKOUT, PATH, Root
from tests.support.clients.http_client import RawHttpClient
from tests.support.ports import free_port
from tests.support.waiting import wait_for

MODEL = "extra.tiny-loop"
TOKENS = 2000
SETTINGS = 'port = {port}\noffline = true\nextra_models_dir = "/srv/models"\nload = ["{model}"]\nthreads = 1\nctx_size = 8192\n'
LEFT = (
    "/opt/lemonbus",
    "/etc/lemonbus",
    "/var/lib/lemonbus",
    "/var/lib/private/lemonbus",
    "/var/cache/lemonbus",
    "/usr/bin/lemonbus",
)
MARK = "ended with"


def check(machine: Root) -> int:
    """Run every check, each on what the former one has left; return 0 if all went well."""
    dist = machine.folder / CHECKOUT[1:] / "dist"
    new = next(dist.glob("lemonbus_9*.deb"))
    (old,) = set(dist.glob("lemonbus_*.deb")) - {new}
    port = free_port()
    began = time.monotonic()
    with Container(machine.folder, f"lemonbus-{port}", {}) as box:
        try:
            package = Package(box, port)
            package.is_installed(old)
            package.is_upgraded_without_a_lost_request(new)
            package.stays_disabled(new)
            package.is_removed_and_purged()
        except AssertionError as wrong:
            print(box.run("journalctl", "--no-pager", "-o", "cat", "-n", "40", "-u", "lemonbus"))
            print(f"packages: the Debian package: {wrong}", flush=True)
            return 1
    print(
        f"packages: the Debian package was installed, upgraded while streams ran, removed and purged in {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return 0


class Package:
    """The package in a container, and checks of it."""

    def __init__(self, box: Container, port: int) -> None:
        """``port``: where its server will answer."""
        self._box = box
        self._client = RawHttpClient(port)

    def _must(self, command: str) -> str:
        """Run a command as root, which must succeed; return what it prints."""
        script = f"exec 2>&1; cd /; ({command}\n); echo {MARK} $?"
        output, _, code = self._box.run("env", "-i", f"PATH={PATH}", "HOME=/root", "sh", "-c", script).rpartition(MARK)
        assert code.strip() == "0", f"{command}: exit {code}: {output}"
        return output.strip()

    def _release(self) -> str:
        try:
            health = self._client.get("/v1/health", patience=2.0)
            return str(health.json()["version"]) if MODEL in health.body.decode() else ""
        except (OSError, ValueError, KeyError):
            return ""

    def _install(self, package: Path) -> None:
        # dpkg checks the dependencies, which were installed with the machine; apt would ask the network.
        self._must(f"DEBIAN_FRONTEND=noninteractive dpkg --install {CHECKOUT}/dist/{package.name}")

    def is_installed(self, package: Path) -> None:
        """It serves, with the settings that were there before, and is enabled."""
        self._must(
            f"mkdir -p /etc/lemonbus && cat > /etc/lemonbus/lemonbus.toml <<'END'\n{SETTINGS.format(port=self._client.port, model=MODEL)}END"
        )
        self._install(package)
        wait_for(self._release, "it serves", 60)
        assert self._must("systemctl is-enabled lemonbus") == "enabled"
        assert self._must("lemonbus version").startswith("lemonbus ")
        assert self._must("dpkg --verify lemonbus") == "", "its files are the packed ones"
        assert "bomFormat" in self._must("cat /usr/share/doc/lemonbus/sbom.cdx.json")

    def _main(self) -> str:
        return self._must("systemctl show -p MainPID --value lemonbus")

    def is_upgraded_without_a_lost_request(self, package: Path) -> None:
        """Streams follow one another during the installation: each is whole, the new release then answers, and the keeper is the same."""
        main, former = self._main(), self._release()
        with ThreadPoolExecutor(1) as pool:
            installed = pool.submit(self._install, package)
            whole = 0
            while not installed.done():
                stream = self._client.start_chat(MODEL, stream=True, max_tokens=TOKENS)
                assert stream.finish(60).done, f"a stream was cut: {stream.status}"
                whole += 1
            installed.result()
        assert whole, "there were streams"
        assert former != self._release() == "9.0.0"
        assert self._main() == main, "it was not restarted"

    def stays_disabled(self, package: Path) -> None:
        """A unit that an administrator has stopped and disabled is neither after an upgrade."""
        self._must("systemctl disable --now --quiet lemonbus")
        self._install(package)
        assert self._must("systemctl is-enabled lemonbus || true") == "disabled"
        assert self._must("systemctl is-active lemonbus || true") == "inactive"
        self._must("systemctl enable --now --quiet lemonbus")
        wait_for(self._release, "it serves", 60)

    def is_removed_and_purged(self) -> None:
        """A removal keeps settings and state; a purge leaves nothing."""
        self._must("dpkg --remove lemonbus")
        assert self._must("systemctl is-active lemonbus || true") == "inactive"
        assert self._must("ls -d /opt/lemonbus /usr/bin/lemonbus 2>/dev/null || true") == ""
        assert self._must("ls /etc/lemonbus /var/lib/lemonbus/") != ""
        self._must("dpkg --purge lemonbus")
        assert self._must(f"ls -d {' '.join(LEFT)} 2>/dev/null || true") == ""
        assert self._must("systemctl list-unit-files 'lemonbus*' --no-legend || true") == ""
