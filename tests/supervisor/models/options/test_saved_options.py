"""What is saved in ``recipe_options.json``, and files that are broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.failures import Code, Failure, LemonbusError
from protocol.models.recipes import RecipeDescriptor
from supervisor.models.options import saved_options
from supervisor.models.options.saved_options import SavedOptions
from tests.supervisor.models.model_files import replace_file
from workers.backends.registry import DESCRIPTORS


def descriptor_of(model: str) -> RecipeDescriptor:
    if model == "unknown":
        raise Failure(Code.MODEL_NOT_FOUND, "no").raised()
    return DESCRIPTORS["llamacpp"]


@pytest.fixture
def saved(tmp_path: Path) -> SavedOptions:
    return SavedOptions(tmp_path / saved_options.FILE, descriptor_of)


def test_what_is_saved_replaces_what_was_saved_and_others_stay(saved: SavedOptions, tmp_path: Path) -> None:
    path = tmp_path / saved_options.FILE
    path.write_text(json.dumps({"other": {"unheard_of": 1}, "m": {"ctx_size": 1}}))
    saved.save("m", {"threads": 2})
    assert json.loads(path.read_text()) == {"other": {"unheard_of": 1}, "m": {"threads": 2}}
    assert saved.of("m") == {"threads": 2}
    saved.save("m", {})
    assert "m" not in json.loads(path.read_text())
    assert [item.name for item in tmp_path.iterdir()] == [saved_options.FILE]


def test_an_edited_file_counts_at_the_next_load(saved: SavedOptions, tmp_path: Path) -> None:
    assert saved.of("m") == {}
    replace_file(tmp_path / saved_options.FILE, b'{"m": {"ctx_size": 256}}')
    assert saved.of("m") == {"ctx_size": 256}


def test_wrong_options_are_not_saved(saved: SavedOptions, tmp_path: Path) -> None:
    for model, wrong in (("m", {"ctx_size": "x"}), ("unknown", {"ctx_size": 1})):
        with pytest.raises(LemonbusError):
            saved.save(model, wrong)
    assert not list(tmp_path.iterdir())


def test_a_wrong_option_in_the_file_is_left_out_alone(saved: SavedOptions, tmp_path: Path) -> None:
    (tmp_path / saved_options.FILE).write_text('{"m": {"ctx_size": "big", "threads": 3}, "n": 5}')
    assert saved.of("m") == {"threads": 3}
    assert saved.of("n") == {}
    assert any("n: expected an object" in problem for problem in saved.problems)
    assert any("ctx_size must be a whole number" in problem for problem in saved.problems)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'{"a":' * 5000])
def test_a_broken_file_is_moved_aside_and_kept(saved: SavedOptions, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / saved_options.FILE
    path.write_bytes(content)
    assert saved.of("m") == {}
    (aside,) = tmp_path.iterdir()
    assert aside.name.startswith(f"{saved_options.FILE}.broken-")
    assert aside.read_bytes() == content
    assert aside.name in saved.problems[0]
    saved.save("m", {"threads": 1})
    assert saved.of("m") == {"threads": 1}


def test_the_error_of_a_file_that_cannot_be_written_has_no_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    saved = SavedOptions(tmp_path / "file" / saved_options.FILE, descriptor_of)
    with pytest.raises(LemonbusError) as raised:
        saved.save("m", {"threads": 1})
    assert raised.value.failure.http_status == 500
    assert str(tmp_path) not in raised.value.failure.message


def test_a_clients_rules_apply_to_what_is_saved(tmp_path: Path) -> None:
    (tmp_path / saved_options.FILE).write_text(json.dumps({"m": {"llamacpp_args": "--log-file /tmp/x", "threads": 2}}))
    saved = SavedOptions(tmp_path / saved_options.FILE, descriptor_of, ["/srv/extra"])
    assert saved.of("m") == {"threads": 2}
    assert "--log-file cannot be sent with a load" in saved.problems[0]


def test_a_change_leaves_the_other_options_and_removes_what_is_not_set(saved: SavedOptions, tmp_path: Path) -> None:
    path = tmp_path / saved_options.FILE
    path.write_text(json.dumps({"other": {"unheard_of": 1}, "m": {"ctx_size": 512, "threads": 2, "pinned": True}}))
    after = saved.changed("m", {"ctx_size": -1, "threads": None, "llamacpp_args": "--no-mmap"})
    assert after == {"ctx_size": -1, "llamacpp_args": "--no-mmap", "pinned": True}
    assert saved.of("m") == {"ctx_size": 512, "threads": 2}, "nothing is written yet"
    saved.replace("m", after)
    assert json.loads(path.read_text()) == {"other": {"unheard_of": 1}, "m": after}
    assert saved.changed("m", {"ctx_size": "auto", "pinned": None}) == {"ctx_size": -1, "llamacpp_args": "--no-mmap"}
    saved.replace("m", {})
    assert json.loads(path.read_text()) == {"other": {"unheard_of": 1}}


@pytest.mark.parametrize("unset", [None, "", -1, "auto"])
def test_words_for_no_value_remove_an_option(saved: SavedOptions, unset: object) -> None:
    saved.save("m", {"threads": 2, "llamacpp_backend": "cpu"})
    assert saved.changed("m", {"threads": unset, "llamacpp_backend": unset}) == {}


@pytest.mark.parametrize(
    "wrong", [{"pinned": None}, {"pinned": True}, {"steps": -1}, {"ctx_size": "x"}, {"ctx_size": -2}]
)
def test_a_wrong_change_is_the_callers_error(saved: SavedOptions, wrong: dict[str, object]) -> None:
    with pytest.raises(LemonbusError) as raised:
        saved.changed("m", wrong)
    assert (raised.value.failure.code, raised.value.failure.param) == (Code.INVALID_REQUEST, next(iter(wrong)))
