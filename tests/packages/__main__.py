"""``python -m tests.packages``: builds the packages as docs/packages.md says, and installs them on Debians that have nothing else.

On a Debian 12: ``make deb`` by an unprivileged user; an installation from the wheelhouse without any network; the Debian package under a
systemd of its own: installed, upgraded while streams run, removed, purged. Then the wheel with the Pythons of other Debians. It needs root and
Debian's packages. Without permission, it says so in one line and exits 0.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bare import container, pipconfig, root
from tests.bare.root import CHECKOUT, USER, Root
from tests.packages import debian
from tests.support.models.tiny_models import link_models
from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "packages.md"
TOOLS = ("git", "make", "python3-venv", "libgomp1", "binutils", "iproute2", "systemd", "dbus")
OTHERS = ("trixie", "sid")
"""Debians with other Pythons."""
BUILD = """\
export SOURCE_DATE_EPOCH=1700000000
deb="/usr/bin/python3 -m deploy.packages.debian build/wheelhouse dist"
make deb
sha256sum dist/* > /tmp/sums
umask 077; touch setup.py; make dist; $deb
sha256sum -c --quiet /tmp/sums
sed -i 's/^RELEASE = .*/RELEASE = "9.0.0"/' protocol/__init__.py
make dist
rm build/wheelhouse/lemonbus-*; cp dist/lemonbus-9.0.0-*.whl build/wheelhouse
python3 -c "
from pathlib import Path
from deploy.packages.wheelhouse import requirements
(folder := Path('build/wheelhouse')).joinpath('requirements.txt').write_text(requirements(folder, 'llamacpp'))"
$deb
"""
MODEL = "extra.tiny-chat"
ASK = f"""\
export LEMONBUS_URL=http://127.0.0.1:$P LEMONBUS_STATE_DIR=/tmp/state LEMONBUS_CACHE_DIR=/tmp/cache
$L serve --port $P --offline --extra-models-dir /srv/models --load {MODEL} --runtime-dir /tmp/run >/tmp/log 2>&1 &
i=0; until $L run {MODEL} Hello >/tmp/answer 2>/tmp/problem; do i=$((i+1)); [ $i -lt 60 ] || {{ cat /tmp/problem /tmp/log; exit 1; }}; sleep 1; done
cat /tmp/answer; kill $!; wait $!
"""
"""Starts the server ``$L`` at the port ``$P``, asks it, and ends it."""


def main() -> int:
    """Build and install everything; return 0 if all went well, or if nothing can be made here."""
    problem = root.missing()
    if problem:
        print(f"packages: not run: {problem}", flush=True)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the container ends then as well
    with tempfile.TemporaryDirectory(prefix="lemonbus-packages-", dir="/tmp") as folder:
        machine = Root(Path(folder) / "bookworm", pipconfig.of_host(), ROOT)
        if problem := machine.make("bookworm", list(TOOLS)):
            print(f"packages: not run: {problem}", flush=True)
            return 0
        code = _built(machine) or _air_gapped(machine) or _debian(machine)
        return code or next((code for suite in OTHERS if (code := _wheel(suite, machine, Path(folder)))), 0)


def _built(machine: Root) -> int:
    """Build everything; build it again, which makes the same bytes; and build a Debian package of a newer release."""
    began = time.monotonic()
    code = machine.run(f"set -e\n{BUILD}")
    print(f"packages: built in {time.monotonic() - began:.0f} s: exit {code}", flush=True)
    return code


def _models(machine: Root) -> None:
    models = machine.folder / "srv" / "models"
    link_models(models.with_name("links"), "tiny-chat", "tiny-loop")
    shutil.copytree(models.with_name("links"), models)  # what the links mean
    for path in (models, *models.iterdir()):
        path.chmod(0o755)


def documented() -> str:
    """Return the commands of docs/packages.md for a machine without a network."""
    found = re.search(r"On the machine without a network:\n\n((?:    .+\n)+)", PAGE.read_text())
    assert found, PAGE
    return found[1]


def _air_gapped(machine: Root) -> int:
    """Install from the wheelhouse with no network but loopback, as the page says, and have a question answered."""
    _models(machine)
    commands = documented().replace("/opt/lemonbus", "/tmp/offline").replace("sudo ", "")  # noqa: S108 - the root's own
    words = machine.words(
        f"set -e; export PIP_QUIET=2; cp -r build/wheelhouse /tmp/; cd /tmp; {commands}\nL=/tmp/offline/bin/lemonbus P={free_port()}\n{ASK}"
    )
    lonely = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *words]
    code = subprocess.run(lonely, stdin=subprocess.DEVNULL, check=False).returncode
    print(f"packages: without a network: exit {code}", flush=True)
    return code


def _debian(machine: Root) -> int:
    if problem := container.missing():
        print(f"packages: the Debian package was not installed: {problem}", flush=True)
        return 0
    return debian.check(machine)


def _wheel(suite: str, built: Root, folder: Path) -> int:
    """Install the wheel with the Python of another Debian; if that is not possible, it says so."""
    other = Root(folder / suite, pipconfig.of_host(), ROOT)
    if problem := other.make(suite, ["python3-venv", "libgomp1", "git"]):
        print(f"packages: {suite}: not run: {problem}", flush=True)
        return 0
    _models(other)
    (wheel,) = (built.folder / CHECKOUT[1:] / "dist").glob("lemonbus-9.0.0-*.whl")
    shutil.copy(wheel, other.folder / "srv")
    if other.run(f"python3 --version; python3 -m venv venv && venv/bin/pip install -qq '/srv/{wheel.name}[llamacpp]'"):
        print(f"packages: {suite}: not run: its Python has no wheels of something", flush=True)
    elif code := other.run(f"L=venv/bin/lemonbus P={free_port()}\n{ASK}", user=USER):
        print(f"packages: {suite}: the wheel: exit {code}", flush=True)
        return code
    shutil.rmtree(other.folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    os.environ.pop("MAKEFLAGS", None)
    sys.exit(main())
