"""Which files an entry means: what the disk will not even look for is not there."""

from __future__ import annotations

from pathlib import Path

from supervisor.models import files
from supervisor.models.catalogues import catalogue


def test_a_name_that_no_file_can_have_is_not_found(tmp_path: Path) -> None:
    source = {"checkpoint": "wheel:x==1#" + "é" * 255, "sha256": "00"}
    entry = catalogue.entry("user.a", {"checkpoint": "a/b", "recipe": "llamacpp", "sources": [source]})
    (tmp_path / "models" / "x-1").mkdir(parents=True)
    assert files.owned_files(entry, str(tmp_path)) == set()
    assert files.locate(entry, str(tmp_path)) is None
