"""What a deletion removes: only files that no other model uses, whatever the cache contains."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.models.catalogues import catalogue
from supervisor.models.catalogues.catalogue import CatalogueEntry
from supervisor.models.deletion_plan import plan_deletion


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


def picture(name: str) -> CatalogueEntry:
    parts = {"main": f"o/r:{name}.gguf", "text_encoder": "o/t:t.gguf", "vae": f"o/v:vae-of-{name}.gguf"}
    return catalogue.entry(name, {"checkpoints": parts, "recipe": "sd-cpp"})


def in_hub(tmp_path: Path, repo: str, file: str) -> Path:
    path = tmp_path / "hub" / f"models--o--{repo}" / "snapshots" / "a" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


def test_a_part_of_two_models_is_deleted_with_the_last_one(snapshot: Path, tmp_path: Path) -> None:
    cache = str(tmp_path)
    shared = in_hub(tmp_path, "t", "t.gguf")
    own = [in_hub(tmp_path, "r", "a.gguf"), in_hub(tmp_path, "v", "vae-of-a.gguf")]
    other = in_hub(tmp_path, "r", "b.gguf")

    kept = plan_deletion(picture("a"), [picture("b")], cache, set())
    assert (kept.order.files, kept.kept_for) == ([str(path) for path in own], ["b"])
    assert [Path(path).name for path in kept.order.repositories] == ["models--o--r", "models--o--t", "models--o--v"]

    other.unlink()
    last = plan_deletion(picture("a"), [picture("b")], cache, set())
    assert (last.order.files, last.kept_for) == (sorted(str(path) for path in (*own, shared)), [])


def test_a_part_stays_for_a_model_that_is_being_downloaded_and_for_one_that_is_the_same_file(
    snapshot: Path, tmp_path: Path
) -> None:
    cache, shared, own = str(tmp_path), in_hub(tmp_path, "t", "t.gguf"), in_hub(tmp_path, "r", "a.gguf")
    assert plan_deletion(picture("a"), [picture("b")], cache, {"models--o--r"}).kept_for == ["b"]
    chat = catalogue.entry("chat", {"checkpoint": "o/t:t.gguf", "recipe": "llamacpp"})
    found = plan_deletion(picture("a"), [chat], cache, set())
    assert (found.order.files, found.kept_for) == ([str(own)], ["chat"])
    by_path = CatalogueEntry("mine", "m.gguf", "sd-cpp", path="/m.gguf", parts={"vae": str(shared)})
    found = plan_deletion(picture("a"), [by_path], cache, set())
    assert (found.order.files, found.kept_for) == ([str(own)], ["mine"])
