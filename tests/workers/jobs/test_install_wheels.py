"""Wheels that the install job puts into a folder of their own, with real pip and a folder of wheels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.messages.backend_installs import PinnedWheel, StartInstall, WheelFile
from protocol.models import installations
from tests.support.fakes.release_server import sha256
from tests.support.fakes.wheels import make_wheel
from tests.workers.jobs.install_orders import find_installed, refused, run
from workers.jobs.progress import DownloadProgress


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    return tmp_path / "wheels"


def pinned(wheel: Path, digest: str = "") -> PinnedWheel:
    data = wheel.read_bytes()
    name, version, *_ = wheel.name.split("-")
    file = WheelFile(digest or sha256(data), len(data))
    other = WheelFile("1" * 64)
    return PinnedWheel(f"{name}=={version}", {wheel.name: file, wheel.name.replace("any", "other"): other})


def wheel_order(cache: Path, *wheels: PinnedWheel) -> StartInstall:
    return StartInstall("llamacpp", "vulkan", "1.0", "d1", str(cache), wheels=list(wheels))


def test_wheels_are_installed_into_a_folder_of_their_own(wheels: Path, tmp_path: Path) -> None:
    first = make_wheel(wheels, "tiny-engine", "1.0", {"tiny_engine/__init__.py": b"VALUE = 7\n"})
    second = make_wheel(wheels, "tiny-helper", "2.0", {"tiny_helper.py": b"import tiny_engine\n"})
    progress = DownloadProgress()
    run(wheel_order(tmp_path / "cache", pinned(first), pinned(second)), progress)
    assert (progress.reading.file_index, progress.reading.total_files) == (2, 2)
    (installation,) = find_installed(tmp_path / "cache")
    assert sorted(path.name for path in installation.folder.iterdir()) == [
        installations.RECORD_FILE,
        installations.SITE_FOLDER,
    ]
    done = subprocess.run(
        [sys.executable, "-c", "import tiny_engine, tiny_helper; print(tiny_engine.VALUE)"],
        env={"PYTHONPATH": str(installation.packages)},
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == b"7\n"


def test_a_wheel_that_is_another_one_is_refused(wheels: Path, tmp_path: Path) -> None:
    wheel = make_wheel(wheels, "tiny-engine", "1.0", {"tiny_engine.py": b"VALUE = 7\n"})
    assert "sha256 differs" in refused(wheel_order(tmp_path, pinned(wheel, "0" * 64)), tmp_path)


def test_a_missing_wheel_is_named(wheels: Path, tmp_path: Path) -> None:
    wheels.mkdir()
    wanted = wheel_order(tmp_path, PinnedWheel("nowhere==1.0", {"x.whl": WheelFile("0" * 64)}))
    assert "the package index has no nowhere==1.0" in refused(wanted, tmp_path)
