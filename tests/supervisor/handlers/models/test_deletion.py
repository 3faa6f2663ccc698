"""What a deletion removes: only files that no other model uses, whatever the cache contains."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.handlers.models.deletion import plan_deletion
from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.catalogue import CatalogueEntry


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / "hub" / "models--o--r" / "snapshots" / "a"
    folder.mkdir(parents=True)
    return folder


def of(name: str, variant: str) -> CatalogueEntry:
    return catalogue.entry(name, {"checkpoint": f"o/r:{variant}", "recipe": "llamacpp"})


def test_a_file_stays_as_long_as_another_entry_means_it(snapshot: Path, tmp_path: Path) -> None:
    for file in ("m-Q4_0.gguf", "m-Q8_0.gguf"):
        (snapshot / file).write_bytes(b"x")
    mine, same, other = of("user.a", "Q4_0"), of("user.b", "m-Q4_0.gguf"), of("user.c", "Q8_0")
    found = plan_deletion(mine, [same, other], str(tmp_path), set())
    assert (found.order.files, found.kept_for) == ([], ["user.b"])
    found = plan_deletion(mine, [other], str(tmp_path), set())
    assert (found.order.files, found.kept_for) == ([str(snapshot / "m-Q4_0.gguf")], [])


def test_shards_and_projector_of_a_model_with_a_path_stay(snapshot: Path, tmp_path: Path) -> None:
    shards = [f"m-Q4_0-0000{number}-of-00002.gguf" for number in (1, 2)]
    for file in (*shards, "mmproj-F16.gguf"):
        (snapshot / file).write_bytes(b"x")
    checkpoint = {"checkpoint": "o/r:Q4_0", "recipe": "llamacpp", "mmproj": "mmproj-F16.gguf"}
    mine = catalogue.entry("user.a", checkpoint)
    assert len(plan_deletion(mine, [], str(tmp_path), set()).order.files) == 3
    path, projector = str(snapshot / shards[0]), str(snapshot / "mmproj-F16.gguf")
    by_path = CatalogueEntry("mine", shards[0], "llamacpp", path=path, mmproj=projector)
    found = plan_deletion(mine, [by_path], str(tmp_path), set())
    assert (found.order.files, found.kept_for) == ([], ["mine"])


def test_a_repository_that_something_is_downloaded_from_is_not_cleaned(snapshot: Path, tmp_path: Path) -> None:
    assert plan_deletion(of("user.a", "Q4_0"), [], str(tmp_path), set()).order.repositories == [
        str(snapshot.parents[1])
    ]
    assert plan_deletion(of("user.a", "Q4_0"), [], str(tmp_path), {"models--o--r"}).empty


def test_a_link_to_itself_is_a_file_like_any_other(snapshot: Path, tmp_path: Path) -> None:
    (snapshot / "m-Q4_0.gguf").symlink_to("m-Q4_0.gguf")
    found = plan_deletion(of("user.a", "Q4_0"), [of("user.c", "Q8_0")], str(tmp_path), set())
    assert found.order.files == [str(snapshot / "m-Q4_0.gguf")]
