"""The file of API keys as processes follow it: broken, deleted, mended, and in a process that starts meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from protocol.config.api_keys import KEYS_FILE, ApiKey
from protocol.config.key_file import KeyFile
from protocol.config.settings import Settings
from tests.gateway.access.key_files import key, store


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "run").mkdir()
    return Settings(state_dir=str(tmp_path), runtime_dir=str(tmp_path / "run"))


def names(file: KeyFile) -> list[str]:
    file.refresh()
    return [each.name for each in file.keys]


def test_without_a_file_no_key_is_needed(settings: Settings) -> None:
    file = KeyFile(settings)
    assert not file.refresh()
    assert (file.exists, file.keys, file.problem) == (False, [], "")


@pytest.mark.parametrize("content", ["{", "", '{"keys":[{"name":"a","sha256":"x"}]}', '{"keys":[],"more":1}'])
def test_a_broken_file_keeps_the_keys_that_any_process_has_read_last(
    settings: Settings, tmp_path: Path, content: str
) -> None:
    store(tmp_path, key("first"))
    early = KeyFile(settings)
    assert names(early) == ["first"]
    store(tmp_path, key("second"))
    assert names(KeyFile(settings)) == ["second"]
    (tmp_path / KEYS_FILE).write_text(content)
    late = KeyFile(settings)
    assert names(late) == names(early) == ["second"], "a revoked key does not come back with a broken file"
    assert late.exists
    assert late.problem
    assert str(tmp_path) not in late.problem
    store(tmp_path, key("third"))
    assert (names(late), late.problem) == (["third"], "")


def test_a_deleted_file_has_no_keys_for_a_later_process_either(settings: Settings, tmp_path: Path) -> None:
    store(tmp_path, key("a"))
    assert names(KeyFile(settings)) == ["a"]
    (tmp_path / KEYS_FILE).unlink()
    for file in (KeyFile(settings), KeyFile(settings)):
        assert names(file) == []
        assert file.exists
    (tmp_path / KEYS_FILE).write_text("{")
    assert names(KeyFile(settings)) == []


def test_a_file_that_is_broken_from_the_beginning_admits_no_client(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / KEYS_FILE).write_text("{")
    file = KeyFile(settings)
    assert (names(file), file.exists) == ([], True)


def test_a_file_that_is_replaced_by_something_else_keeps_the_keys(settings: Settings, tmp_path: Path) -> None:
    store(tmp_path, key("a"))
    file = KeyFile(settings)
    assert names(file) == ["a"]
    (tmp_path / KEYS_FILE).unlink()
    (tmp_path / KEYS_FILE).symlink_to(KEYS_FILE)
    for each in (file, KeyFile(settings)):
        assert names(each) == ["a"]
        assert "symbolic link" in each.problem
        assert not each.refresh(), "it is read once"
    (tmp_path / KEYS_FILE).unlink()
    (tmp_path / KEYS_FILE).mkdir()
    assert (names(file), file.problem) == (["a"], "not a regular file")


def test_the_copy_is_private_and_has_digests_alone(settings: Settings, tmp_path: Path) -> None:
    store(tmp_path, key("a"))
    KeyFile(settings).refresh()
    (copy,) = (tmp_path / "run").iterdir()
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.read_bytes() == (tmp_path / KEYS_FILE).read_bytes()


def test_a_process_that_cannot_open_the_file_for_a_moment_reads_it_as_soon_as_it_can(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file does not change a second time: a key that was revoked meanwhile would be valid there forever."""
    store(tmp_path, key("kept"), key("revoked"))
    file = KeyFile(settings)
    assert names(file) == ["kept", "revoked"]
    store(tmp_path, key("kept"))
    with monkeypatch.context() as patch:
        patch.setattr("protocol.config.key_file.read_keys", no_descriptor_left)
        assert names(file) == ["kept", "revoked"]
        assert file.problem == "Too many open files"
    assert (names(file), file.problem) == (["kept"], "")


def no_descriptor_left(_path: Path) -> list[ApiKey]:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
