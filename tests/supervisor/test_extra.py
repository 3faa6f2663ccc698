"""The extra models directory with files in it that are no models: the supervisor reads it, and waits for nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor import extra
from supervisor.extra import ExtraModels


def test_of_very_many_files_that_may_be_whisper_cpps_only_some_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extra, "_MOST_LOOKS", 3)
    for name in "abcd":
        (tmp_path / f"{name}.bin").write_bytes(b"lmgg")
    models = ExtraModels(str(tmp_path))
    for _ in range(2):
        assert models.refresh()
        assert sorted(models.entries) == ["extra.a", "extra.b", "extra.c"]
        (problem,) = models.problems
        assert "only 3 were looked at" in problem


def test_links_and_pipes_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("a.bin", "b.gguf", "folder/genai_config.json"):
        (tmp_path / name).symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "c.bin")
    (tmp_path / "d.bin").symlink_to(tmp_path / "d.bin")
    models = ExtraModels(str(tmp_path))
    assert models.refresh()
    assert not models.entries


def test_a_pipe_that_took_a_files_place_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "_holds", lambda _question: True)
    os.mkfifo(tmp_path / "a.bin")
    models = ExtraModels(str(tmp_path))
    assert models.refresh()
    assert not models.entries
