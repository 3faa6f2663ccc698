"""Names of models: what each means, and the error for an unknown one."""

from __future__ import annotations

import difflib
import itertools
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.failures import Code, LemonbusError
from supervisor.handlers.model_targets import serves
from supervisor.models import names
from supervisor.models.catalogues import extra_models
from supervisor.models.catalogues.adopted_models import MAX_ADOPTED
from supervisor.models.catalogues.catalogue import CatalogueEntry
from tests.supervisor.models.model_files import SMOL, SMOL_HUB, MakeModels, write_files, write_hub_cache


@pytest.mark.parametrize("name", [SMOL, f"{SMOL}:latest", SMOL_HUB, f"hf:{SMOL_HUB}", f"{SMOL_HUB}:latest"])
def test_a_model_has_several_names(make: MakeModels, name: str) -> None:
    assert make().resolve(name).name == SMOL


@pytest.mark.parametrize("asked", ["unsloth/Qwen3-0.6B-GGUF", "hf:unsloth/Qwen3-0.6B-GGUF"])
def test_a_repository_with_one_model_of_the_catalogue_means_that(make: MakeModels, asked: str) -> None:
    assert make().resolve(asked).name == "Qwen3-0.6B-GGUF"
    assert make().find("ggerganov/whisper.cpp") is None, "it has several"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("smollm2-135m-instruct", SMOL),
        ("Qwen3-4B", "Qwen3-4B-GGUF"),
        ("user.Gemma-3-4b-it-GGUF", "Gemma-3-4b-it-GGUF"),
        ("unslot/Qwen3-0.6B-GGUF", "Qwen3-0.6B-GGUF"),
        ("nomic", "nomic-embed-text-v1-GGUF"),
    ],
)
def test_the_error_for_an_unknown_name_suggests_similar_ones(make: MakeModels, asked: str, expected: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        make().resolve(asked)
    failure = raised.value.failure
    assert failure.code is Code.MODEL_NOT_FOUND
    assert failure.http_status == 404
    assert expected in failure.message


def test_among_thirty_thousand_names_a_bounded_number_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    whole = difflib.get_close_matches

    def counted(word: str, candidates: list[str], n: int, cutoff: float) -> list[str]:
        compared.append(len(candidates))
        return whole(word, candidates, n, cutoff)

    monkeypatch.setattr(names.difflib, "get_close_matches", counted)
    similar = names.SimilarNames([f"user.Qwen-{number}-Instruct-GGUF" for number in range(30_000)])
    assert "user.Qwen-12345-Instruct-GGUF" in similar.of("Qwen-12345-Instrct")
    assert "user.Qwen-777-Instruct-GGUF" in similar.of("user.qwen-777-instruct")
    assert similar.of("nothing like it") == []
    assert max(compared) <= 500


def test_a_model_is_looked_up_once_for_a_request(
    make: MakeModels, extra: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(extra, "m.gguf")
    models = make()
    lookups: list[int] = []
    refresh = models._refresh
    monkeypatch.setattr(models, "_refresh", lambda found: (lookups.append(1), refresh(found)))
    entry = models.resolve("extra.m")
    found = models.located(entry)
    spec = models.spec(entry, {"ctx_size": 512}, found=found)
    models.specs.precheck(spec)
    assert serves(spec, "chat/completions")
    assert len(lookups) == 1


def test_a_slow_check_of_the_disk_is_not_repeated_for_a_while(
    make: MakeModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = make()
    lookups: list[int] = []
    now = [100.0]

    def slow() -> bool:
        lookups.append(1)
        now[0] += 0.1
        return False

    monkeypatch.setattr(models.extra, "refresh", slow)
    monkeypatch.setattr(extra_models, "_SLOW_CHECK_S", 0.05)
    monkeypatch.setattr(extra_models.time, "monotonic", lambda: now[0])
    for _ in range(100):
        models.find("unknown")
    assert len(lookups) == 1
    now[0] += 2.0
    models.find("unknown")
    assert len(lookups) == 2


def test_until_the_next_check_of_a_slow_disk_new_and_removed_files_count(make: MakeModels, extra: Path) -> None:
    stamps = itertools.count(1_000_000)

    def changed(folder: Path) -> None:
        stamp = next(stamps)  # two changes within one tick of the file system's clock would have the same time
        os.utime(folder, (stamp, stamp))

    write_files(extra, "folder/old.gguf")
    changed(extra)
    models = make()
    models.extra._next_check = math.inf
    assert models.find("extra.new") is None
    write_files(extra, "new.gguf")
    changed(extra)
    assert models.find("extra.new") is not None
    (extra / "folder" / "old.gguf").unlink()
    changed(extra / "folder")
    assert models.find("extra.folder") is None


ENTRIES = {
    name: CatalogueEntry(name, f"o/{name}:Q4_0", "llamacpp") for name in ("A-GGUF", "user.B", "extra.C", "a/b", "x:y")
}
CHECKPOINTS = sorted(entry.checkpoint for entry in ENTRIES.values())


@given(st.text() | st.sampled_from(sorted(ENTRIES)) | st.sampled_from(CHECKPOINTS))
def test_latest_changes_nothing_and_failures_can_be_sent(name: str) -> None:
    index = names.NameIndex(ENTRIES)
    found = index.find(name)
    assert index.find(name + names.LATEST) is found
    if found is None:
        failure = index.not_found(name)
        failure.message.encode()
        failure.model.encode()
        assert len(failure.message) < 500
    else:
        assert name.removesuffix(names.LATEST) in (found.name, found.checkpoint, f"hf:{found.checkpoint}")


def test_an_unregistered_checkpoint_can_be_adopted(make: MakeModels, tmp_path: Path) -> None:
    models = make()
    with pytest.raises(LemonbusError):
        models.resolve("some/repo:Q4_0")
    assert models.resolve_or_adopt("hf:some/repo:Q4_0").name == "some/repo:Q4_0"
    assert models.resolve("some/repo:Q4_0").sources[0].checkpoint == "some/repo:Q4_0"
    write_hub_cache(tmp_path, "some/repo", "x-Q4_0.gguf")
    assert models.downloaded("some/repo:Q4_0")
    for number in range(MAX_ADOPTED):
        models.resolve_or_adopt(f"some/repo{number}")
    with pytest.raises(LemonbusError):
        models.resolve("some/repo:Q4_0")
    for wrong in ("nothing", "a/../b", "wheel:x==1#a/b"):
        with pytest.raises(LemonbusError):
            models.resolve_or_adopt(wrong)


def test_an_entry_is_added_to_the_index_and_removed_again() -> None:
    index = names.NameIndex(ENTRIES)
    added = CatalogueEntry("o/new:Q4_0", "o/new:Q4_0", "llamacpp")
    index.add(added)
    assert index.find("hf:o/new:Q4_0") is index.get("o/new:Q4_0") is added
    index.remove(added)
    assert index.find("o/new:Q4_0") is None
    assert "did you mean" not in index.not_found("o/new:Q4_1").message
    assert list(index.entries()) == list(ENTRIES.values())


def test_an_added_entry_takes_no_name_from_another_and_its_removal_removes_no_other() -> None:
    index = names.NameIndex(ENTRIES)
    checkpoint = ENTRIES["user.B"].checkpoint
    added = CatalogueEntry(checkpoint, checkpoint, "llamacpp")
    index.add(added)
    index.remove(CatalogueEntry(checkpoint, checkpoint, "llamacpp", suggested=True))
    assert index.find(checkpoint) is added, "another entry of this name was removed"
    index.remove(added)
    assert index.find(checkpoint) is ENTRIES["user.B"]


def test_the_later_source_of_two_entries_with_one_name_counts() -> None:
    later = CatalogueEntry("A-GGUF", "o/other:Q4_0", "llamacpp")
    assert names.NameIndex(ENTRIES, {"A-GGUF": later}).find("A-GGUF") is later
