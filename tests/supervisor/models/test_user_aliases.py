"""Further names of models and the default model: kept in one file, written whole, read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.failures import Code, LemonbusError
from supervisor.models import user_aliases
from supervisor.models.user_aliases import UserAliases
from tests.supervisor.models.model_files import MakeModels, write_files

QWEN = "Qwen3-0.6B-GGUF"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / user_aliases.FILE


def test_names_and_default_survive_a_restart(path: Path) -> None:
    names = UserAliases(path)
    assert (names.default, names.aliases) == ("", {})
    names.add_alias("mine", QWEN)
    names.set_default("mine")
    assert json.loads(path.read_text()) == {"default": "mine", "aliases": {"mine": QWEN}}
    again = UserAliases(path)
    assert (again.default, again.aliases, again.of(QWEN)) == ("mine", {"mine": QWEN}, ["mine"])
    again.drop_alias("mine")
    assert json.loads(path.read_text()) == {}, "a name that is gone is the default no more"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"default": 5}', b'{"aliases": {"a": []}}'])
def test_a_broken_file_is_moved_aside(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    names = UserAliases(path)
    assert (names.default, names.aliases) == ("", {})
    (aside,) = path.parent.iterdir()
    assert aside.name.startswith(f"{user_aliases.FILE}.broken-")
    assert aside.name in names.problems[0]


def test_a_failed_write_changes_nothing(path: Path) -> None:
    names = UserAliases(path)
    names.set_default(QWEN)
    path.unlink()
    path.parent.rmdir()
    path.parent.touch()
    with pytest.raises(LemonbusError) as raised:
        names.set_default("other")
    assert (raised.value.failure.code, names.default) == (Code.INTERNAL, QWEN)


def test_the_number_of_names_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_aliases, "MAX_ALIASES", 1)
    names = UserAliases(path)
    names.add_alias("a", QWEN)
    names.add_alias("a", "other")
    with pytest.raises(LemonbusError):
        names.add_alias("b", QWEN)


def test_a_copy_is_a_name_like_others(make: MakeModels) -> None:
    models = make()
    models.add_alias("mine", QWEN)
    for name in ("mine", "mine:latest"):
        assert models.resolve(name).name == QWEN
    assert make().resolve("mine").name == QWEN, "after a restart"
    models.drop_alias("mine")
    assert models.find("mine") is None


@pytest.mark.parametrize("taken", [QWEN, "llama3.2:1b", "llama3.2-1b"])
def test_a_copy_never_hides_a_model(make: MakeModels, taken: str) -> None:
    with pytest.raises(LemonbusError) as raised:
        make().add_alias(taken, "Qwen3-1.7B-GGUF")
    assert raised.value.failure.code is Code.CONFLICT


def test_a_deleted_model_takes_its_names_along(make: MakeModels, extra: Path) -> None:
    write_files(extra, "a.gguf")
    models = make()
    models.add_alias("mine", QWEN)
    models.add_alias("other", "extra.a")
    models.user_aliases.set_default("mine")
    models.forget(models.resolve(QWEN))
    assert (models.user_aliases.aliases, models.user_aliases.default) == ({"other": "extra.a"}, "")
