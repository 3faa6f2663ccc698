"""The sampling defaults are kept: they are written completely and read again, and broken files affect nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from protocol.failures import LemonbusError
from supervisor.handlers.models import sampling_defaults
from supervisor.handlers.models.sampling_defaults import SamplingDefaultsStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / sampling_defaults.FILE


def made(path: Path) -> tuple[SamplingDefaultsStore, list[str]]:
    problems: list[str] = []
    return SamplingDefaultsStore(path, problems.append), problems


def test_only_values_that_were_set_are_stored(path: Path) -> None:
    defaults, problems = made(path)
    assert (defaults.values, defaults.report().set) == ({}, [])
    assert not path.exists()
    assert defaults.change({"temperature": 0.8, "max_length": 1000})
    assert json.loads(path.read_text()) == {"temperature": 0.8, "max_length": 1000}
    again, problems = made(path)
    assert again.values == {"temperature": 0.8, "max_length": 1000}
    assert not problems
    assert again.report().params["top_k"] == 50
    assert [item.name for item in path.parent.iterdir()] == [sampling_defaults.FILE]


def test_a_change_that_changes_nothing_writes_nothing(path: Path) -> None:
    defaults, _ = made(path)
    assert not defaults.change({})
    assert not defaults.change({"top_p": None})
    assert not path.exists()


def test_a_reset_value_is_removed(path: Path) -> None:
    defaults, _ = made(path)
    defaults.change({"temperature": 0.8, "top_k": 1})
    assert defaults.change({"temperature": None})
    assert (defaults.report().params["temperature"], defaults.report().set) == (0.7, ["top_k"])
    assert json.loads(path.read_text()) == {"top_k": 1}


def test_a_wrong_value_changes_nothing(path: Path) -> None:
    defaults, _ = made(path)
    defaults.change({"top_k": 1})
    before = path.read_bytes()
    for wrong in ({"temperature": 9.0, "top_k": 2}, {"min_length": 3000}):
        with pytest.raises(LemonbusError):
            defaults.change(wrong)  # type: ignore[arg-type]
    assert (defaults.values, path.read_bytes()) == ({"top_k": 1}, before)


def test_values_that_a_recipe_does_not_use_are_reported(path: Path) -> None:
    defaults, _ = made(path)
    defaults.change({"min_length": 5, "top_k": 1})
    assert defaults.report().ignored["llamacpp"] == ["min_length"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe"])
def test_a_broken_file_is_moved_aside_and_kept(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    defaults, problems = made(path)
    assert defaults.values == {}
    (aside,) = path.parent.iterdir()
    assert aside.name.startswith(f"{sampling_defaults.FILE}.broken-")
    assert aside.read_bytes() == content
    assert aside.name in problems[0]
    assert defaults.change({"top_k": 1})


def test_a_wrong_value_in_the_file_is_left_out_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"temperature": "hot", "top_k": 5, "heat": 1, "min_length": 5000}')
    defaults, problems = made(path)
    assert defaults.values == {"top_k": 5}
    assert [problem.split()[1] for problem in problems] == ["temperature", "heat", "min_length"]


def test_the_error_of_a_file_that_cannot_be_written_has_no_path(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    defaults, _ = made(tmp_path / "file" / sampling_defaults.FILE)
    with pytest.raises(LemonbusError) as raised:
        defaults.change({"top_k": 1})
    assert raised.value.failure.http_status == 500
    assert str(tmp_path) not in raised.value.failure.message
    assert defaults.values == {}
