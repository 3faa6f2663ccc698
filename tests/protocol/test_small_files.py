"""Small files are read completely or not at all; a pipe of the same name is not waited for. Private ones are replaced whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from protocol import small_files
from protocol.models import installations


def refused(path: Path) -> OSError:
    with pytest.raises(OSError, match=path.name) as raised:
        small_files.read_small_file(path)
    return raised.value


@pytest.mark.parametrize("size", [0, 1, small_files.MAX_BYTES])
def test_a_file_is_read_whole(tmp_path: Path, size: int) -> None:
    content = b"x" * size
    (tmp_path / "file").write_bytes(content)
    (tmp_path / "link").symlink_to("file")
    assert small_files.read_small_file(tmp_path / "link") == content


def test_a_pipe_a_folder_and_a_device_are_not_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "device"):
        problem = refused(tmp_path / name)
        assert (problem.errno, problem.strerror) == (errno.EINVAL, "not a regular file")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(small_files.MAX_BYTES + 1)
    problem = refused(tmp_path / "file")
    assert (problem.errno, problem.strerror) == (errno.EFBIG, "larger than 4 MiB")


def test_a_pipe_instead_of_a_record_is_not_an_installation(tmp_path: Path) -> None:
    folder = installations.backend_folder(str(tmp_path), "llamacpp", "cpu") / "1-abc"
    folder.mkdir(parents=True)
    os.mkfifo(folder / installations.RECORD_FILE)
    assert installations.find_installations(str(tmp_path), "llamacpp", "cpu") == []


def test_a_private_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"before")
    file.chmod(0o644)
    small_files.replace_private(file, b"after")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"after", 0o600)
    refused = pytest.raises(ValueError, match="refused")
    with refused, small_files.private_draft(file, b"never", lasting=True) as draft:
        assert (draft.read_bytes(), draft.stat().st_mode & 0o777) == (b"never", 0o600)
        raise ValueError("refused")
    assert file.read_bytes() == b"after"
    with pytest.raises(FileNotFoundError):
        small_files.replace_private(tmp_path / "missing" / "keys", b"")
    assert [each.name for each in tmp_path.iterdir()] == ["keys"]
