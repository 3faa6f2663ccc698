"""Models that flm fetches itself: the reported progress, the note in the cache, and failures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.models.checkpoints import TagCheckpoint
from supervisor.models import files
from supervisor.models.catalogues.catalogue import entry
from workers.jobs import flm
from workers.jobs.errors import SourceError
from workers.jobs.progress import DownloadProgress, ProgressSnapshot

CHECKPOINT = TagCheckpoint("flm", "llama3.2:1b")
PROGRESS_LINES = """[FLM]  Missing files (2):
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


def write(program: Path, code: int = 0, listed: str = "") -> None:
    lists = f"[ \"$*\" = 'list --json' ] && {{ cat <<'X'\n{listed}\nX\nexit 0; }}\n" if listed else ""
    pulls = f"[ \"$*\" = 'pull llama3.2:1b' ] || exit 9\ncat <<'X'\n{PROGRESS_LINES}X\nexit {code}\n"
    program.write_text(f"#!/bin/sh\n{lists}{pulls}")
    program.chmod(0o755)


def test_a_fetched_model_is_found(program: Path, tmp_path: Path) -> None:
    write(program)
    model = entry("user.x", {"checkpoint": CHECKPOINT.tag, "recipe": "flm"})
    assert files.locate(model, str(tmp_path)) is None
    progress = DownloadProgress()
    assert flm.fetch(CHECKPOINT, str(tmp_path), progress) == 2
    size = int(1.2 * 2**30)
    assert progress.reading == ProgressSnapshot("model.q4nx", 2, 2, size, size)
    found = files.locate(model, str(tmp_path))
    assert found is not None
    assert (found.path, found.size) == (CHECKPOINT.tag, size + 1024)


@pytest.mark.parametrize(
    ("listed", "size"),
    [
        ('{"models":[{"name":"a:1b","installed":false},{"name":"llama3.2:1b","installed":true,"size":1235814432}]}', 1235814432),
        ('[FLM]  Hello\n{"models":[{"name":"llama3.2:1b","installed":true,"size":7}]}', 7),
        ('{"models":[]}', int(1.2 * 2**30) + 1024),
        ("Error parsing arguments: unrecognised option '--json'", int(1.2 * 2**30) + 1024),
    ],
)  # fmt: skip
def test_the_size_in_flms_list_wins(program: Path, tmp_path: Path, listed: str, size: int) -> None:
    write(program, listed=listed)
    flm.fetch(CHECKPOINT, str(tmp_path), DownloadProgress())
    found = files.locate(entry("user.x", {"checkpoint": CHECKPOINT.tag, "recipe": "flm"}), str(tmp_path))
    assert found is not None
    assert found.size == size


def test_a_model_that_flm_does_not_list_is_an_error(program: Path, tmp_path: Path) -> None:
    write(program, listed='{"models":[{"name":"llama3.2:1b","installed":false}]}')
    with pytest.raises(SourceError, match="installed"):
        flm.fetch(CHECKPOINT, str(tmp_path), DownloadProgress())
    assert not CHECKPOINT.mark(str(tmp_path)).exists()


def test_overwritten_progress_lines_are_separate_lines() -> None:
    reading, writing = os.pipe()
    lines = flm._lines(reading)
    os.write(writing, b"one\n\r\033[Ktwo\r")
    assert [next(lines), next(lines)] == ["one", "\033[Ktwo"]
    os.write(writing, b"thr")
    os.close(writing)
    assert list(lines) == ["thr"]
    os.close(reading)


def test_flm_fails(program: Path, tmp_path: Path) -> None:
    write(program, 3)
    with pytest.raises(SourceError, match="exit 3") as raised:
        flm.fetch(CHECKPOINT, str(tmp_path), DownloadProgress())
    assert "Missing files" in raised.value.detail
    assert "Missing files" not in str(raised.value)
    assert not CHECKPOINT.mark(str(tmp_path)).exists()


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("CURL error: Couldn't resolve host name\n[ERROR]  Failed to pull model: x\n", "resolve host name; [ERROR]"),
        ("[FLM]  Downloading 1/2: a\n\033[K[ERROR] no space left: /var/lib/flm/models/a.q4nx\n", "no space left: …"),
        ("[FLM]  See https://fastflowlm.com/docs for help\n", "See https://fastflowlm.com/docs for help"),
        ("x" * 9000 + " the end\n", "the end"),
    ],
)
def test_a_failed_pull_has_the_last_lines_of_flm(program: Path, tmp_path: Path, printed: str, words: str) -> None:
    (tmp_path / "printed").write_text(printed)
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/printed >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(SourceError) as raised:
        flm.fetch(CHECKPOINT, str(tmp_path), DownloadProgress())
    message = str(raised.value)
    assert message.startswith("flm could not fetch llama3.2:1b (exit 1): ")
    assert words in message
    assert "/var" not in message
    assert "\033" not in message
    assert len(message) < 400


def test_no_flm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="not found on PATH"):
        flm.fetch(CHECKPOINT, str(tmp_path), DownloadProgress())
