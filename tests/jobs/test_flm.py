"""Models that flm fetches itself: what is told of its progress, and what is noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.checkpoints import TagPlace
from supervisor import files
from supervisor.catalogue import entry
from workers.jobs import flm
from workers.jobs.gauge import Gauge, Reading
from workers.jobs.trouble import SourceError

PLACE = TagPlace("llama3.2:1b")
SAID = """[FLM]  Missing files (2):
  - config.json
[FLM]  Downloading 1/2: config.json
[FLM]  Downloading: 100.0% (1.0KB / 1.0KB)
[FLM]  Overall progress: 50.0% (1/2 files)
[FLM]  Downloading 2/2: model.q4nx
[FLM]  Downloading: 10.0% (0.1GB / 1.2GB)\r[FLM]  Downloading: 100.0% (1.2GB / 1.2GB)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bin" / "flm"
    path.parent.mkdir()
    monkeypatch.setenv("PATH", str(path.parent), prepend=":")
    return path


def write(program: Path, code: int = 0) -> None:
    program.write_text(f"#!/bin/sh\n[ \"$*\" = 'pull llama3.2:1b' ] || exit 9\ncat <<'X'\n{SAID}X\nexit {code}\n")
    program.chmod(0o755)


def test_flm_fetches_and_it_is_known(program: Path, tmp_path: Path) -> None:
    write(program)
    model = entry("user.x", {"checkpoint": PLACE.tag, "recipe": "flm"})
    assert files.locate(model, str(tmp_path)) is None
    gauge = Gauge()
    assert flm.fetch(PLACE, str(tmp_path), gauge) == 2
    assert gauge.reading == Reading("model.q4nx", 2, 2, 1_200_000_000, 1_200_000_000)
    found = files.locate(model, str(tmp_path))
    assert found is not None
    assert (found.path, found.size) == (PLACE.tag, 1_200_001_000)


def test_flm_fails(program: Path, tmp_path: Path) -> None:
    write(program, 3)
    with pytest.raises(SourceError, match="exit 3") as raised:
        flm.fetch(PLACE, str(tmp_path), Gauge())
    assert "Missing files" in raised.value.detail
    assert not PLACE.mark(str(tmp_path)).exists()


def test_no_flm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="not found on PATH"):
        flm.fetch(PLACE, str(tmp_path), Gauge())
