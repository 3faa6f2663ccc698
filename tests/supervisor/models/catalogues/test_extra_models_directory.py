"""The extra models directory: what is a model in it, what is not, and when it is read again. Nothing waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.failures import Code, LemonbusError
from protocol.wire import envelope
from supervisor.models.catalogues import extra_folders
from supervisor.models.catalogues.extra_models import ExtraModels
from tests.supervisor.models.model_files import SMOL, MakeModels, extra_ids, write_files
from tests.support.models import bert_gguf, diffusion_gguf
from tests.support.models.mmproj_and_lora_gguf import write_adapter


def test_each_refresh_opens_some_files_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra_folders, "_MOST_READS", 3)
    for name in "abcd":
        (tmp_path / f"{name}.bin").write_bytes(b"lmgg")
    os.utime(tmp_path, (1_000_000, 1_000_000))
    models = ExtraModels(str(tmp_path))
    assert models.refresh()
    assert sorted(models.entries) == ["extra.a", "extra.b", "extra.c"]
    assert models.refresh()
    assert sorted(models.entries) == ["extra.a", "extra.b", "extra.c", "extra.d"]
    assert not models.refresh()


def test_links_and_pipes_are_not_models(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("a.bin", "b.gguf", "folder/genai_config.json"):
        (tmp_path / name).symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "c.bin")
    (tmp_path / "d.bin").symlink_to(tmp_path / "d.bin")
    models = ExtraModels(str(tmp_path))
    assert models.refresh()
    assert not models.entries


def test_a_pipe_that_replaced_a_file_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra_folders, "_is_true", lambda _question: True)
    os.mkfifo(tmp_path / "a.bin")
    models = ExtraModels(str(tmp_path))
    assert models.refresh()
    assert not models.entries


def test_extra_models_are_named_by_file_or_folder(make: MakeModels, extra: Path) -> None:
    write_files(extra, "plain.gguf", "UPPER.GGUF", "notes.txt", ".hidden/x.gguf", "vision/model-Q4_0.gguf")
    write_files(extra, "vision/mmproj-F16.gguf", "several/a.gguf", "several/b.gguf", "deep/er/c.gguf")
    write_files(extra, "big/big-00001-of-00002.gguf", "big/big-00002-of-00002.gguf", "half/h-00001-of-00002.gguf")
    models = make()
    single = ["big", "plain", "UPPER", "vision"]
    assert set(extra_ids(models)) == {f"extra.{name}" for name in [*single, "a", "b", "er"]}
    vision = models.spec("extra.vision", {})
    assert vision.path.endswith("model-Q4_0.gguf")
    assert vision.mmproj.endswith("mmproj-F16.gguf")
    assert "vision" in vision.labels
    assert vision.size == 16
    big = models.spec("extra.big", {})
    assert big.path.endswith("big-00001-of-00002.gguf")
    assert big.size == 16
    assert len(models.problems) == 1
    assert "not all of them" in models.problems[0]


def test_the_header_of_a_file_decides_what_the_model_is(make: MakeModels, extra: Path) -> None:
    bert_gguf.write(extra / "one.gguf", "x", ranks=False, seed=1)
    bert_gguf.write(extra / "two.gguf", "x", ranks=True, seed=1)
    (extra / "parts").mkdir()
    diffusion_gguf.write(extra / "parts")
    (extra / "parts" / "dit.gguf").rename(extra / "three.gguf")
    write_files(extra, "embed-rerank-sd.gguf")
    models = make()
    found = {name: models.spec(models.resolve(f"extra.{name}"), {}) for name in ("one", "two", "three")}
    assert {name: (spec.recipe, spec.type) for name, spec in found.items()} == {
        "one": ("llamacpp", "embedding"),
        "two": ("llamacpp", "reranking"),
        "three": ("sd-cpp", "image"),
    }
    assert models.entry("extra.embed-rerank-sd").type == "llm", "its name says nothing"


def test_a_folder_with_a_model_and_its_parts_is_one_model(make: MakeModels, extra: Path) -> None:
    (extra / "ovis").mkdir()
    diffusion_gguf.write(extra / "ovis")
    models = make()
    assert extra_ids(models) == ["extra.ovis"]
    spec = models.spec("extra.ovis", {})
    assert (spec.recipe, spec.type) == ("sd-cpp", "image")
    files = {name: extra / "ovis" / f"{name}.gguf" for name in ("dit", "llm", "tae")}
    assert (spec.path, spec.parts) == (str(files["dit"]), {"text_encoder": str(files["llm"]), "tae": str(files["tae"])})
    assert spec.size == sum(path.stat().st_size for path in files.values())

    # Nothing is guessed of a folder in which something else is as well, or one part twice.
    bert_gguf.write(extra / "ovis" / "other.gguf", "x", ranks=False, seed=1)
    assert models.find("extra.ovis") is None
    (extra / "ovis" / "other.gguf").unlink()
    assert models.find("extra.ovis") is not None
    files["tae"].rename(extra / "tae.gguf")
    files["llm"].rename(extra / "llm.gguf")
    assert models.spec("extra.ovis", {}).parts == {}


def test_adapters_are_not_models_and_change_no_name(make: MakeModels, extra: Path) -> None:
    bert_gguf.write(extra / "one.gguf", "x", ranks=False, seed=1)
    (extra / "folder").mkdir()
    bert_gguf.write(extra / "folder" / "model.gguf", "x", ranks=False, seed=1)
    for folder in (extra, extra / "folder"):
        write_adapter(folder / "adapter.gguf")
    assert {entry.id for entry in make().entries(show_all=False)} == {"extra.one", "extra.folder"}


def test_a_folder_of_onnx_genai_is_one_model(make: MakeModels, extra: Path) -> None:
    write_files(
        extra, "deep/model/genai_config.json", "deep/model/model.onnx", "deep/model/more/data.bin", "deep/x.gguf"
    )
    models = make()
    assert set(extra_ids(models)) == {"extra.model", "extra.deep"}
    spec = models.spec("extra.model", {})
    assert (spec.recipe, spec.backend, spec.path, spec.size) == ("oga-cpu", "cpu", str(extra / "deep" / "model"), 24)
    assert models.entry("extra.model").downloaded
    (extra / "deep" / "model" / "genai_config.json").unlink()
    assert extra_ids(models) == ["extra.deep"]


def test_the_extra_directory_is_read_again_when_it_changes(make: MakeModels, extra: Path) -> None:
    models = make()
    assert extra_ids(models) == []
    write_files(extra, "new.gguf")
    assert models.downloaded("extra.new")
    write_files(extra, "folder/deep.gguf")
    assert models.resolve("extra.folder").recipe
    (extra / "new.gguf").unlink()
    with pytest.raises(LemonbusError):
        models.resolve("extra.new")


def test_an_unchanged_directory_is_not_read_again(
    make: MakeModels, extra: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(extra, "a/x.gguf", "b/y.gguf")
    for folder in (extra / "a", extra / "b", extra):
        os.utime(folder, (1_000_000, 1_000_000))
    models = make()
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail(f"read {path} again"))
    assert models.resolve("extra.a").path.endswith("x.gguf")


@pytest.mark.parametrize("to", ["x.gguf", "y" * 300])
def test_a_broken_link_affects_no_other_model(make: MakeModels, extra: Path, to: str) -> None:
    write_files(extra, "good.gguf")
    (extra / "x.gguf").symlink_to(to)
    (extra / "folder").symlink_to(to)
    assert extra_ids(make()) == ["extra.good"]


def test_two_files_of_one_name_are_two_models(make: MakeModels, extra: Path) -> None:
    write_files(extra, "same.gguf", "same/other.gguf", "x/chat.gguf", "x/more.gguf", "y/z/chat.gguf", "y/z/less.gguf")
    models = make()
    wanted = ["same", "same/other", "x/chat", "more", "y/z/chat", "less"]
    assert sorted(extra_ids(models)) == sorted(f"extra.{name}" for name in wanted)
    assert models.resolve("extra.y/z/chat").path == str(extra / "y/z/chat.gguf")
    assert models.resolve_or_adopt("extra.x/chat").path == str(extra / "x/chat.gguf")
    assert not models.problems


def test_two_folders_of_one_name_and_two_kinds_of_file_of_one_name(make: MakeModels, extra: Path) -> None:
    write_files(extra, "a/m/genai_config.json", "b/m/genai_config.json", "w.gguf")
    (extra / "w.bin").write_bytes(b"lmgg")
    models = make()
    assert sorted(extra_ids(models)) == ["extra.a/m", "extra.b/m", "extra.w"]
    assert "w.bin is not used: another file is extra.w already" in models.problems[0]


def test_names_that_are_not_utf8_are_skipped_with_one_warning(make: MakeModels, extra: Path) -> None:
    odd = extra / os.fsdecode(b"mod\xe8les")
    write_files(odd, "a.gguf", "b.gguf")
    write_files(extra, os.fsdecode(b"\xff.gguf"), "good.gguf")
    models = make()
    assert extra_ids(models) == ["extra.good"]
    assert models.problems == ["extra models directory: 2 files or folders are skipped: their names are not UTF-8"]
    envelope.pack_payload(models.spec("extra.good", {}))


def test_a_directory_whose_own_name_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xe8")
    write_files(folder, "a.gguf")
    models = ExtraModels(str(folder))
    models.refresh()
    assert not models.entries
    assert len(models.problems) == 1
    models.problems[0].encode()


def test_a_missing_directory_is_reported_and_affects_nothing_else(make: MakeModels, extra: Path) -> None:
    extra.rmdir()
    models = make()
    assert models.resolve(SMOL).recipe
    assert "No such file" in models.problems[0]
    assert models.extra.unusable == (
        f"extra_models_dir {extra} cannot be read, so its models are not known: No such file or directory"
    )
    extra.mkdir()
    models.extra.refresh()
    assert not models.extra.unusable


def test_locating_a_model_does_not_list_its_folder(
    make: MakeModels, extra: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(extra, "a.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf")
    os.utime(extra, (1_000_000, 1_000_000))
    models = make()
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail(f"listed {path}"))
    list_folder = os.listdir
    monkeypatch.setattr(
        os, "listdir", lambda path: pytest.fail(f"listed {path}") if Path(path) == extra else list_folder(path)
    )
    assert set(extra_ids(models)) == {"extra.a", "extra.big"}
    (extra / "big-00002-of-00002.gguf").unlink()
    os.utime(extra, (1_000_000, 1_000_000))
    assert extra_ids(models) == ["extra.a"]


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("empty", "its file is empty; replace it by a complete one"),
        ("/proc/kmsg", "its file is empty; replace it by a complete one"),
        ("moved", "its file m.gguf is missing; put it back"),
        ("round", "its file cannot be read (Too many levels of symbolic links); replace it by a complete one"),
    ],
)
def test_the_error_names_what_is_wrong_with_a_file(
    make: MakeModels, extra: Path, tmp_path: Path, to: str, why: str
) -> None:
    write_files(tmp_path, "moved")
    (tmp_path / "round").touch()
    (tmp_path / "empty").touch()
    (extra / "m.gguf").symlink_to(tmp_path / to)
    os.utime(extra, (1_000_000, 1_000_000))
    models = make()
    assert models.resolve("extra.m").path
    (tmp_path / "moved").unlink()
    (tmp_path / "round").unlink()
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(LemonbusError) as raised:
        models.downloaded("extra.m")
    failure = raised.value.failure
    assert (failure.code, failure.model) == (Code.MODEL_UNUSABLE, "extra.m")
    assert failure.message == f"extra.m cannot be loaded: {why}"
    assert failure.detail == str(extra / "m.gguf")
    assert not models.entry("extra.m").downloaded
    assert extra_ids(models) == []
