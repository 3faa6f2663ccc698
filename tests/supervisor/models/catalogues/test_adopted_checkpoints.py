"""A checkpoint that is not registered but was used: it is known as long as its files are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.failures import LemonbusError
from supervisor.models.catalogues import adopted_models
from supervisor.models.catalogues.adopted_models import FILE, MAX_ADOPTED
from tests.supervisor.models.model_files import MakeModels, write_hub_cache

NAME = "some/repo-GGUF:Q4_0"


def test_one_whose_files_are_here_is_known_after_a_restart(make: MakeModels, tmp_path: Path) -> None:
    write_hub_cache(tmp_path, "some/repo-GGUF", "x-Q4_0.gguf")
    models = make()
    models.resolve_or_adopt(NAME, "llamacpp")
    models.resolve_or_adopt("some/other-GGUF", "llamacpp")
    models.adopted.keep(NAME)
    again = make()
    assert again.resolve(NAME).recipe == "llamacpp"
    assert again.find("hf:" + NAME) is again.find(NAME)
    assert NAME in [entry.id for entry in again.entries(show_all=False)]
    assert again.find("some/other-GGUF") is None, "its files are still to come"
    assert again.problems == []


def test_one_that_was_deleted_is_unknown_after_a_restart(make: MakeModels, tmp_path: Path) -> None:
    models = make()
    entry = models.resolve_or_adopt(NAME, "llamacpp")
    models.adopted.keep(NAME)
    models.options.save(NAME, {"ctx_size": 1024})
    models.forget(entry)
    for each in (models, make()):
        assert each.find(NAME) is None
        assert not each.adopted.is_kept(NAME)
    assert json.loads((tmp_path / "state" / "recipe_options.json").read_text()) == {}


def test_one_that_is_kept_is_forgotten_last(make: MakeModels) -> None:
    models = make()
    models.resolve_or_adopt(NAME)
    models.adopted.keep(NAME)
    for number in range(MAX_ADOPTED + 1):
        models.resolve_or_adopt(f"some/repo{number}")
    assert models.find(NAME) is not None
    assert len(models.adopted.entries) == MAX_ADOPTED


def test_one_named_twice_stays_kept_only_while_it_is_known(make: MakeModels) -> None:
    models = make()
    models.resolve_or_adopt(NAME)
    models.adopted.keep(NAME)
    models.adopted.forget(NAME)
    models.resolve_or_adopt(NAME)
    assert not models.adopted.is_kept(NAME)
    assert make().find(NAME) is None


def test_a_file_of_this_machine_is_not_kept(make: MakeModels, extra: Path, tmp_path: Path) -> None:
    (extra / "a.gguf").write_bytes(b"GGUF" + bytes(40))
    models = make()
    models.adopted.entries["mine"] = models.resolve("extra.a")
    models.adopted.keep("mine")
    assert not (tmp_path / "state" / FILE).exists()


def test_a_broken_file_is_moved_aside_and_a_broken_entry_skipped(make: MakeModels, tmp_path: Path) -> None:
    file = tmp_path / "state" / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{")
    (problem,) = make().problems
    assert "moved aside" in problem
    assert not file.exists()
    file.write_text(json.dumps({NAME: {"checkpoint": NAME, "recipe": "llamacpp"}, "a/b": {"recipe": 1}}))
    models = make()
    (problem,) = models.problems
    assert "a/b" in problem
    assert models.find(NAME) is not None


def test_what_cannot_be_written_changes_nothing(make: MakeModels, monkeypatch: pytest.MonkeyPatch) -> None:
    models = make()
    models.resolve_or_adopt(NAME)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(adopted_models.StateFile, "replace", full)
    with pytest.raises(LemonbusError):
        models.adopted.keep(NAME)
    assert not models.adopted.is_kept(NAME)
    assert models.find(NAME) is not None
