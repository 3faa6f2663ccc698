"""``python3 -m deploy.packages.debian WHEELHOUSE FOLDER``: a Debian package from a wheelhouse, without a network.

The Python that runs this must be Debian's own, of the release that the package is for: the package has a virtual environment in
``/opt/lemonbus`` on it. Needs ``dpkg-deb``, ``strip`` and ``python3-venv``. The same wheelhouse gives the same bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from deploy.packages.dist import epoch

ROOT: Final = Path(__file__).resolve().parents[2]
SCRIPTS: Final = Path(__file__).with_name("debian")
SYSTEMD: Final = ROOT / "deploy" / "systemd"
HOME: Final = "opt/lemonbus"
DOCUMENTS: Final = "usr/share/doc/lemonbus"
DEBUG_BYTES: Final = 10_000_000
"""Libraries above this size lose what a debugger needs, as in the image: llama.cpp is 75 MB smaller."""
CONTROL: Final = """\
Package: lemonbus
Version: {version}
Architecture: {architecture}
Maintainer: The lemonbus developers <lemonbus@localhost>
Installed-Size: {size}
Depends: python3 (>= {python}), python3 (<< {next_python}), libc6 (>= {libc}), libgomp1, init-system-helpers (>= 1.54)
Recommends: systemd
Section: net
Priority: optional
Description: one HTTP address for every local model
 lemonbus serves many local models over one HTTP address, to clients of OpenAI,
 Anthropic, Ollama, Lemonade and llama.cpp. Every part is a separate process;
 when one of them dies, another one is started.
"""


def debian_version(release: str) -> str:
    """Return the version for Debian: one before a release, such as ``0.2.0rc1``, sorts before it."""
    return re.sub(r"(?<=\d)\.?(a|b|rc|dev)(?=\d)", r"~\1", release)


def least_libc(wheels: Iterable[str]) -> str:
    """Return the lowest version of glibc on which all wheels run, from their names."""
    lowest = [
        min(int(minor) for minor in minors)
        for name in wheels
        if (minors := re.findall(r"manylinux_2_(\d+)_", name.replace("manylinux2014", "manylinux_2_17")))
    ]
    return f"2.{max(lowest, default=17)}"


def main(wheelhouse: Path, folder: Path) -> None:
    """Write ``lemonbus_VERSION_ARCHITECTURE.deb`` into the folder."""
    if sys.executable != f"/usr/bin/python3.{sys.version_info.minor}" and sys.prefix != "/usr":
        raise SystemExit(f"{sys.executable} is not the Python of Debian, on which the package runs")
    for program, package in (("dpkg-deb", "dpkg"), ("strip", "binutils")):
        if not shutil.which(program):
            raise SystemExit(f"there is no {program}: sudo apt-get install {package}")
    time = epoch()
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as made:
        stage = Path(made) / "stage"
        _install(stage / HOME, wheelhouse)
        _relocate(stage / HOME)
        _add_files(stage, wheelhouse)
        _date(stage, int(time))
        _compile(stage)
        _date(stage, int(time))
        folder.mkdir(parents=True, exist_ok=True)
        version, architecture = _version(wheelhouse), _output("dpkg", "--print-architecture")
        archive = folder / f"lemonbus_{version}_{architecture}.deb"
        _control(stage, wheelhouse, version, architecture)
        command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z9", "--build", str(stage), str(archive)]
        subprocess.run(command, env={**os.environ, "SOURCE_DATE_EPOCH": time}, stdout=subprocess.DEVNULL, check=True)


def _output(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def _version(wheelhouse: Path) -> str:
    (wheel,) = wheelhouse.glob("lemonbus-*.whl")
    return debian_version(wheel.name.split("-")[1])


def _install(environment: Path, wheelhouse: Path) -> None:
    """Make the virtual environment; pip stays, because ``lemonbus backends install`` needs it."""
    subprocess.run([sys.executable, "-m", "venv", "--symlinks", str(environment)], check=True)
    offline = ["--no-index", "--no-compile", "--find-links", str(wheelhouse), "--require-hashes"]
    command = [
        str(environment / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        *offline,
    ]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    subprocess.run([*command, "-r", str(wheelhouse / "requirements.txt")], env=clean, check=True)
    for cache in list(environment.rglob("__pycache__")):
        shutil.rmtree(cache)


def _relocate(environment: Path) -> None:
    """Let it name the folder that it will be in, and strip large libraries; the lists of installed files follow."""
    old, new = str(environment).encode(), f"/{HOME}".encode()
    for file in [environment / "pyvenv.cfg", *(environment / "bin").iterdir()]:
        if not file.is_symlink() and old in (text := file.read_bytes()):
            file.write_bytes(text.replace(old, new))
    for library in environment.rglob("*.so*"):
        if library.stat().st_size > DEBUG_BYTES and not library.is_symlink():
            _output("strip", "--strip-debug", str(library))
    for record in environment.rglob("*.dist-info/RECORD"):
        _update(record)


def _update(record: Path) -> None:
    """Write the present hash and size of each file of an installed package."""
    with record.open(newline="") as file:
        rows = [row for row in csv.reader(file) if not row[0].endswith(".pyc")]
    for row in rows:
        path = record.parents[1] / row[0]
        if row[1] and path.is_file():
            data = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            row[1:] = [f"sha256={digest}", str(len(data))]
    with record.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(sorted(rows))


def _add_files(stage: Path, wheelhouse: Path) -> None:
    files = {
        SYSTEMD / "lemonbus.service": "usr/lib/systemd/system/lemonbus.service",
        SYSTEMD / "gpu.conf": f"{DOCUMENTS}/gpu.conf",
        SYSTEMD / "no-devices.conf": f"{DOCUMENTS}/no-devices.conf",
        ROOT / "LICENSE": f"{DOCUMENTS}/copyright",
        wheelhouse / "sbom.cdx.json": f"{DOCUMENTS}/sbom.cdx.json",
    }
    for source, target in files.items():
        (stage / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, stage / target)
    (stage / "etc" / "lemonbus").mkdir(parents=True)
    (stage / "usr" / "bin").mkdir(parents=True)
    (stage / "usr" / "bin" / "lemonbus").symlink_to(f"/{HOME}/bin/lemonbus")


def _compile(stage: Path) -> None:
    """Compile all modules for the paths that they will have. The server may not write into its environment."""
    command = [
        sys.executable,
        "-m",
        "compileall",
        "-qq",
        "-j",
        "0",
        "-s",
        str(stage),
        "-p",
        "/",
        str(stage / HOME / "lib"),
    ]
    # A template or a module for another Python does not compile, which is expected.
    clean = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run(command, env=clean, stdout=subprocess.DEVNULL, check=False)


def _date(stage: Path, time: int) -> None:
    """Give all files one time: compiled modules have the time of their source in them."""
    for path in stage.rglob("*"):
        os.utime(path, (time, time), follow_symlinks=False)


def _control(stage: Path, wheelhouse: Path, version: str, architecture: str) -> None:
    files = [each for each in stage.rglob("*") if each.is_file() and not each.is_symlink()]
    control = stage / "DEBIAN"
    control.mkdir()
    minor = sys.version_info.minor
    text = CONTROL.format(
        version=version,
        architecture=architecture,
        size=sum(each.stat().st_size for each in files) // 1024,
        python=f"3.{minor}",
        next_python=f"3.{minor + 1}",
        libc=least_libc(each.name for each in wheelhouse.glob("*.whl")),
    )
    (control / "control").write_text(text)
    sums = (
        f"{hashlib.md5(each.read_bytes(), usedforsecurity=False).hexdigest()}  {each.relative_to(stage)}\n"
        for each in sorted(files)
    )
    (control / "md5sums").write_text("".join(sums))
    for script in SCRIPTS.iterdir():
        shutil.copyfile(script, control / script.name)
        (control / script.name).chmod(0o755)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
