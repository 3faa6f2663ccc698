"""What builds the sdist, the wheelhouse and the Debian package. ``python -m tests.packages`` builds and installs them."""

from __future__ import annotations

import hashlib
import io
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

from deploy.packages.debian import CONTROL, HOME, SCRIPTS, debian_version, least_libc
from deploy.packages.dist import SOURCES, normalize
from deploy.packages.wheelhouse import requirements

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "lemonbus.service"


@pytest.mark.parametrize(
    ("release", "version"),
    [("0.1.0", "0.1.0"), ("0.2.0rc1", "0.2.0~rc1"), ("0.2.0.dev3", "0.2.0~dev3"), ("1.0a2", "1.0~a2")],
)
def test_a_version_before_a_release_sorts_before_it(release: str, version: str) -> None:
    assert debian_version(release) == version


def test_the_package_needs_the_glibc_of_its_wheels() -> None:
    wheels = [
        "a-1-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
        "b-1-cp311-cp311-manylinux_2_26_x86_64.whl",
        "c-1-cp38-abi3-manylinux2014_x86_64.whl",
        "d-1-py3-none-any.whl",
    ]
    assert least_libc(wheels) == "2.26"
    assert least_libc(wheels[2:]) == "2.17"


def test_requirements_allow_only_the_files_that_are_there(tmp_path: Path) -> None:
    for name in ("lemonbus-0.1.0-py3-none-any.whl", "zope_event-6.2-py3-none-any.whl"):
        (tmp_path / name).write_text(name)
    hashes = [hashlib.sha256(path.name.encode()).hexdigest() for path in sorted(tmp_path.iterdir())]
    assert requirements(tmp_path, "llamacpp").splitlines() == [
        f"lemonbus[llamacpp]==0.1.0 --hash=sha256:{hashes[0]}",
        f"zope_event==6.2 --hash=sha256:{hashes[1]}",
    ]


def archive(names: list[str], time: int, user: int, mode: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.mode = 1, time, user, mode
            made.addfile(member, io.BytesIO(b"x"))
    return packed.getvalue()


def test_the_same_files_make_the_same_archive() -> None:
    first = normalize(archive(["b", "a"], 1, 1000, 0o600), 100)
    assert first == normalize(archive(["a", "b"], 2, 0, 0o664), 100)
    assert first != normalize(archive(["a", "c"], 2, 0, 0o664), 100)


def test_an_sdist_has_what_the_image_is_built_from() -> None:
    sent = re.findall(r"^!/(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert set(sent) == set(SOURCES)


def test_the_unit_runs_what_the_package_has() -> None:
    assert f"\nExecStart=/{HOME}/bin/lemonbus serve\n" in UNIT.read_text()


def test_the_shell_understands_the_scripts_and_each_stops_at_its_first_error() -> None:
    scripts = sorted(SCRIPTS.iterdir())
    assert [script.name for script in scripts] == ["postinst", "postrm", "prerm"]
    for script in scripts:
        assert "\nset -e\n" in script.read_text()
        done = subprocess.run(["sh", "-n", script], capture_output=True, text=True, timeout=10, check=False)
        assert done.returncode == 0, done.stderr


def test_an_upgrade_stops_nothing() -> None:
    """Only a removal stops the unit, and only a first installation starts it."""
    before = (SCRIPTS / "prerm").read_text()
    assert re.findall(r"^.*\bstop .*$", before, re.MULTILINE) == [
        "    deb-systemd-invoke stop lemonbus.service || true"
    ]
    assert 'if [ "$1" = remove ]' in before
    assert not re.search(r"systemctl (?:re)?start |invoke restart", (SCRIPTS / "postinst").read_text())


def test_control_fields_have_what_dpkg_requires() -> None:
    fields = re.findall(r"^(\w[\w-]*): ", CONTROL, re.MULTILINE)
    assert {"Package", "Version", "Architecture", "Maintainer", "Description"} <= set(fields)
